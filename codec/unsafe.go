package codec

import (
	"encoding/binary"
	"unsafe"
)

// stringOf views b as a string without copying. The bytes must not change
// while the string is in use, which is what the ownership contract in doc.go
// promises for request bodies and for arenas.
func stringOf(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// bytesOf views s as bytes without copying. Nobody may write to them.
func bytesOf(s string) []byte {
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// offsetIn returns where part begins within whole, or -1 when part is no view
// of whole.
func offsetIn(whole, part string) int {
	start := uintptr(unsafe.Pointer(unsafe.StringData(whole)))
	at := uintptr(unsafe.Pointer(unsafe.StringData(part)))
	if at < start || at >= start+uintptr(len(whole)) {
		return -1 // what begins right behind whole is another allocation
	}
	return int(at - start)
}

// sameStart reports whether two texts begin at the same byte of memory.
func sameStart(a, b string) bool {
	return unsafe.StringData(a) == unsafe.StringData(b)
}

// word returns the eight bytes of text at pos as a little-endian number. The caller
// ensures that they exist: checking it here would take longer than reading them.
func word(text string, pos int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(unsafe.Pointer(unsafe.StringData(text)), pos))[:])
}
