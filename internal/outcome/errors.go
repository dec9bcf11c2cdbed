package outcome

import "errors"

// ErrSettled: the delivery was acked or nacked already.
var ErrSettled = errors.New("delivery is settled already")
