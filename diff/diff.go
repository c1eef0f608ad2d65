// Package diff creates JSON Patches (RFC 6902).
//
// AppendPatch creates the patch for the edits of a codec.Object. It looks only at the
// edited values, so its cost depends on the edits and not on the size of the object.
// Typed copies the changes of a Go value into an object. Documents compares two JSON
// documents with github.com/wI2L/jsondiff. Both process the whole object and cost
// hundreds of times more; use them if the code cannot edit the object itself.
//
// A patch applies to the object that the API server sent. It creates parents before
// their fields, and contains no operation for an edit that changed nothing. Appending to
// an array is an "add" operation, not a replacement of the array.
package diff

import (
	"strconv"
	"strings"
	"sync"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	// comparedMax is the maximum number of members or elements that are compared one
	// by one when an object or array was set as a whole. Looking up members takes time
	// quadratic in their number. The patch replaces larger ones as a whole, which is
	// also correct, only longer.
	comparedMax = 256

	// depthMax is the maximum depth of such a comparison, for the same reason and to
	// bound recursion. Kubernetes' own types nest some 15 deep.
	depthMax = 64

	// pointerBytesMax is the largest buffer for pointers that the pool keeps.
	pointerBytesMax = 4 << 10

	// OperationsMax is the maximum number of operations in a patch. etcd stores
	// objects of up to 1.5 MiB (etcd --max-request-bytes). Such a Pod has at most
	// 34,000 containers, because a container takes at least 46 bytes of protobuf,
	// with a name and the fields that kube-apiserver sets. The limit allows more
	// than three operations for each container.
	OperationsMax = 131_072

	// PatchBytesMax is the maximum length of a patch in bytes. It allows 128 bytes
	// for each of OperationsMax operations.
	PatchBytesMax = 16 << 20
)

// A differ holds the memory of one comparison.
type differ struct {
	patch   []byte
	pointer []byte
	values  []codec.Value // elements being compared, a stack of slices

	operations int  // the number of operations in patch
	bytesMax   int  // the maximum length of patch
	tooLong    bool // patch would have exceeded bytesMax
}

var differs = sync.Pool{New: func() any { return new(differ) }}

// AppendPatch appends the JSON Patch from the original document of o to its current
// state. It appends nothing if they are equal. If the patch would have more than
// OperationsMax operations or PatchBytesMax bytes, it appends nothing, and o.Err is
// a *codec.SizeError.
func AppendPatch(dst []byte, o *codec.Object) []byte {
	d := differs.Get().(*differ)
	d.patch = dst
	d.patch = append(d.patch, '[')
	d.operations, d.bytesMax, d.tooLong = 0, len(dst)+PatchBytesMax, false
	for edit := range o.Edits() {
		d.pointer = append(d.pointer[:0], edit.Pointer...)
		if d.compare(edit.Before, edit.After, 0); d.tooLong || d.operations > OperationsMax {
			break
		}
	}
	patch := d.patch
	d.patch = nil
	switch {
	case d.operations > OperationsMax:
		o.TooLarge(&codec.SizeError{What: "operations of the JSON Patch with its changes", Max: OperationsMax})
		return dst
	case d.tooLong || len(patch) > d.bytesMax:
		o.TooLarge(&codec.SizeError{What: "bytes of the JSON Patch with its changes", Max: PatchBytesMax})
		return dst
	}
	if cap(d.pointer) <= pointerBytesMax {
		differs.Put(d)
	}
	if len(patch) == len(dst)+1 {
		return dst
	}
	patch[len(patch)-1] = ']' // in place of the last comma
	return patch
}

// compare appends the operations that change before to after at d.pointer, each with a
// comma behind it. At least one of the values exists.
func (d *differ) compare(before, after codec.Value, depth int) {
	switch kind := after.Kind(); {
	case !before.Exists():
		d.operation("add", after)
	case !after.Exists():
		d.operation("remove", after)
	case same(before, after):
	case kind != before.Kind() || depth == depthMax:
		d.operation("replace", after)
	case kind == codec.KindObject:
		d.shorter(after, func() bool { return d.compareMembers(before, after, depth+1) })
	case kind == codec.KindArray:
		d.shorter(after, func() bool { return d.compareElements(before, after, depth+1) })
	default:
		d.operation("replace", after)
	}
}

// same reports whether two values are equal. Objects and arrays are equal only if their
// texts are.
func same(a, b codec.Value) bool {
	x, y := a.JSON(), b.JSON()
	if x == y || a.Kind() != codec.KindString || b.Kind() != codec.KindString {
		return x == y
	}
	escaped := strings.IndexByte(x, '\\') >= 0 || strings.IndexByte(y, '\\') >= 0
	return escaped && a.EqualString(b.String())
}

// shorter appends the operations of parts. If one operation that replaces the whole value
// by after is shorter, or if parts returns false, it appends that one instead.
func (d *differ) shorter(after codec.Value, parts func() bool) {
	start, operations := len(d.patch), d.operations
	done := parts()
	whole := len(d.patch)
	if done && whole == start {
		return
	}
	d.operation("replace", after)
	if done && whole-start <= len(d.patch)-whole {
		d.patch = d.patch[:whole]
		d.operations--
		return
	}
	d.operations = operations + 1
	d.patch = append(d.patch[:start], d.patch[whole:]...)
}

func (d *differ) compareMembers(before, after codec.Value, depth int) bool {
	if before.Len() > comparedMax || after.Len() > comparedMax {
		return false
	}
	at := len(d.pointer)
	for name, member := range before.Members() {
		if !after.Get(name).Exists() {
			d.pointer = codec.AppendPointerToken(append(d.pointer[:at], '/'), name)
			d.operation("remove", member)
		}
	}
	for name, member := range after.Members() {
		d.pointer = codec.AppendPointerToken(append(d.pointer[:at], '/'), name)
		d.compare(before.Get(name), member, depth)
	}
	d.pointer = d.pointer[:at]
	return true
}

// compareElements skips equal elements at both ends, and compares those between in pairs.
// Elements without a partner were added or removed.
func (d *differ) compareElements(before, after codec.Value, depth int) bool {
	if before.Len() > comparedMax || after.Len() > comparedMax {
		return false
	}
	bottom := len(d.values)
	defer func() {
		clear(d.values[bottom:]) // so that a differ in the pool references no document
		d.values = d.values[:bottom]
	}()
	for _, element := range before.Elements() {
		d.values = append(d.values, element)
	}
	middle := len(d.values)
	for _, element := range after.Elements() {
		d.values = append(d.values, element)
	}
	old, now := d.values[bottom:middle:middle], d.values[middle:]
	first := 0
	for first < min(len(old), len(now)) && same(old[first], now[first]) {
		first++
	}
	for len(old) > first && len(now) > first && same(old[len(old)-1], now[len(now)-1]) {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	at := len(d.pointer)
	index := func(i int) { d.pointer = strconv.AppendInt(append(d.pointer[:at], '/'), int64(i), 10) }
	paired := min(len(old), len(now))
	for i := first; i < paired; i++ {
		index(i)
		d.compare(old[i], now[i], depth)
	}
	for i := len(old) - 1; i >= paired; i-- { // from the end, so that the other indexes stay valid
		index(i)
		d.operation("remove", old[i])
	}
	for i := paired; i < len(now); i++ {
		index(i)
		d.operation("add", now[i])
	}
	d.pointer = d.pointer[:at]
	return true
}

// operation appends one operation at d.pointer, with a comma behind it.
func (d *differ) operation(op string, value codec.Value) {
	d.operations++
	if len(d.patch) >= d.bytesMax {
		d.tooLong = true
		return
	}
	d.patch = append(d.patch, `{"op":"`...)
	d.patch = append(d.patch, op...)
	d.patch = append(d.patch, `","path":`...)
	d.patch = codec.AppendStringBytes(d.patch, d.pointer)
	if op != "remove" {
		d.patch = append(d.patch, `,"value":`...)
		d.patch = value.AppendJSON(d.patch)
	}
	d.patch = append(d.patch, "},"...)
}
