package bench

// Child runs what a parent of this program wants of it, if there is one.
func Child() {}
