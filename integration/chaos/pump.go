//go:build unix

package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"time"
)

const (
	chunk        = 32 << 10
	notification = 'A' // the type of PostgreSQL's NotificationResponse
	queued       = 256 // parcels on their way
)

// parcel is what was read at one time.
type parcel struct {
	data []byte
	at   time.Time
}

// plain reads what there is.
func plain(from net.Conn) func() ([]byte, error) {
	return func() ([]byte, error) {
		data := make([]byte, chunk)
		n, err := from.Read(data)
		return data[:n], err
	}
}

// messages reads whole messages of the server and leaves out notifications while
// muted says so.
func messages(from net.Conn, muted func() bool) func() ([]byte, error) {
	r := bufio.NewReaderSize(from, chunk)
	return func() ([]byte, error) {
		var data []byte
		for {
			head := make([]byte, 5)
			if _, err := io.ReadFull(r, head); err != nil {
				return data, err
			}
			body := make([]byte, max(binary.BigEndian.Uint32(head[1:]), 4)-4)
			if _, err := io.ReadFull(r, body); err != nil {
				return data, err
			}
			if head[0] != notification || !muted() {
				data = append(append(data, head...), body...)
			}
			if r.Buffered() == 0 || len(data) >= chunk {
				return data, nil
			}
		}
	}
}

// pump carries one way of a line until it ends. What was read is still delivered.
func (p *proxy) pump(l *line, read func() ([]byte, error), to net.Conn) {
	defer l.close()
	parcels := make(chan parcel, queued)
	go func() {
		defer close(parcels)
		for {
			data, err := read()
			if len(data) > 0 {
				select {
				case parcels <- parcel{data, time.Now()}:
				case <-l.done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	for next := range parcels {
		if !p.hold(l, next.at) {
			return
		}
		if _, err := to.Write(next.data); err != nil {
			return
		}
	}
	p.hold(l, time.Time{}) // the end of a connection is not seen through a frozen proxy, either
}

// hold waits until a parcel may go on; false when the line has ended.
func (p *proxy) hold(l *line, at time.Time) bool {
	for {
		p.mu.Lock()
		dead, thawed, rest := l.dead, p.thawed, p.delay-time.Since(at)
		p.mu.Unlock()
		switch {
		case dead:
			<-l.done
			return false
		case thawed != nil:
			select {
			case <-thawed:
			case <-l.done:
				return false
			}
		case rest > 0:
			timer := time.NewTimer(rest)
			select {
			case <-timer.C:
			case <-l.done:
				timer.Stop()
				return false
			}
		default:
			return true
		}
	}
}
