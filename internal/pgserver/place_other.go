//go:build unix && !linux

package pgserver

const memoryDir = ""

func memoryHasRoom() bool { return false }
