package codec

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// MemoryMax is how many bytes an Object may use in addition to its text: for its nodes
// and their copy at the checkpoint, the text of edits, unescaped strings, and the bytes
// that Fits is called for.
//
// It is twice what the largest object needs that can be stored. etcd takes
// requests of 1.5 MiB (etcd --max-request-bytes). A container of a Pod takes at
// least 46 bytes of that in protobuf, with a name and the fields that
// kube-apiserver fills in, so a Pod has at most 34,000. When two plugins change
// each of them, one of which has a checkpoint, that takes 29 MB.
const MemoryMax = 64 << 20

// StringMax is the maximum length in bytes of a string or member name that is read.
// Messages repeat strings, and each layer of an error copies them once more: a name of
// 33 MB took 430 MB. kube-apiserver takes requests of 3 MiB
// (k8s.io/apiserver pkg/server/config.go MaxRequestBodyBytes).
const StringMax = 4 << 20

// memoryUsual is how many bytes an Object may use without asking the MemoryGranter.
// It is enough for all reads and some edits: a Pod that ten plugins have read takes a
// seventh of it.
const memoryUsual = 64 << 10

// MemoryKey is the context key of a review's MemoryGranter, in the context that
// SetContext sets. Without a MemoryGranter each review may use MemoryMax, whatever
// other reviews use.
type MemoryKey struct{}

// A MemoryGranter decides whether there is memory for a review that needs more than
// usual. It is asked again each time the review needs more.
type MemoryGranter interface {
	// GrantMemory is asked for what reading and changing the review's document takes.
	GrantMemory() bool
	// GrantValues is asked for what expressions make of the document. bytes is how many they
	// may have made in all.
	GrantValues(bytes int) bool
}

// LenderKey is the context key of a review's MemoryLender. Without one, answers take what memory
// they need.
type LenderKey struct{}

// A MemoryLender lends memory for what a plugin gets from elsewhere for a review, such as the
// answer of another server. Several goroutines may use it at the same time, also after the
// review.
type MemoryLender interface {
	// Lend lends n bytes until giveBack is called. If there is no room for them and wait is true,
	// it may wait for a part of the time that ctx has. ok is false if there is none.
	Lend(ctx context.Context, n int64, wait bool) (giveBack func(), ok bool)
	// Keep lends n bytes until the end of the review, and does not wait. Only the review's
	// goroutine may call it.
	Keep(n int64) (ok bool)
}

// ErrNoMemory is the error of an Object whose MemoryGranter had no memory for the
// review. It is temporary: neither the plugin nor the document causes it.
var ErrNoMemory = errors.New("no memory for the review at the moment")

// SizeError says that a document exceeded a limit. Objects that an API server can
// store do not exceed it, so the request is denied; no plugin is at fault.
type SizeError struct {
	What string // what is counted
	Max  int    // how many there may be
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("got more than %d %s, the maximum", e.Max, e.What)
}

// TooLarge records err as the first error, unless there is one.
func (o *Object) TooLarge(err *SizeError) {
	if o.err == nil {
		o.err = err
	}
}

// Refuse records err as the first error of v's Object, unless there is one. It is
// for code that decodes a value: a *SizeError denies the request, a *SyntaxError
// says that the text is not JSON.
func (v Value) Refuse(err error) {
	if v.object != nil && v.object.err == nil {
		v.object.err = err
	}
}

// Fits reports whether the review may use n more bytes, according to MemoryMax and
// its MemoryGranter. If not, Err returns the error. Plugins call it before they
// allocate memory for each element of a list. It reserves nothing, because a
// plugin's memory is freed when it has answered.
func (o *Object) Fits(n int) bool {
	if o.err != nil {
		return false
	}
	switch taken := o.memory(); {
	case n > MemoryMax-taken:
		o.err = &SizeError{What: "bytes of memory for what is read and changed of the object", Max: MemoryMax}
	case n > memoryUsual-taken && !o.isGranted():
		o.err = ErrNoMemory
	}
	return o.err == nil
}

// bounded returns s. If s is longer than StringMax, it records the error and returns "".
func (o *Object) bounded(s string) string {
	if len(s) > StringMax {
		o.TooLarge(&SizeError{What: "bytes of a string", Max: StringMax})
		return ""
	}
	return s
}

func (o *Object) isGranted() bool {
	granter := o.granter()
	return granter == nil || granter.GrantMemory()
}

func (o *Object) granter() MemoryGranter {
	if o.ctx == nil {
		return nil
	}
	granter, _ := o.ctx.Value(MemoryKey{}).(MemoryGranter)
	return granter
}

// Makes reports whether expressions may make values of n bytes in all. Unlike what Fits is
// called for, these do not depend on the length of the document. If there is no memory for
// them, Err returns ErrNoMemory.
func (o *Object) Makes(n int) bool {
	if o.err != nil {
		return false
	}
	if granter := o.granter(); granter != nil && !granter.GrantValues(n) {
		o.err = ErrNoMemory
	}
	return o.err == nil
}

// The bytes that decoding takes for each byte, object and element of a text, while
// slices grow: a Container, the largest of Kubernetes' types that are in lists, has
// some 500 bytes, and strings and names have 16.
const (
	decodedByte    = 2
	decodedObject  = 1 << 10
	decodedElement = 40
)

// decodedMost is the maximum for each byte of text: an object has at least two.
const decodedMost = decodedByte + (decodedObject+decodedElement)/2

// FitsDecoded reports whether the review may use the memory that decoding the value
// into Go types takes, as Fits does. The memory is estimated: text in a string that
// looks like an object counts as one. Plugins call it before they decode a value,
// or build something similar for each element of a list. With a long value, it waits until
// the context's Pacer allows the work.
func (v Value) FitsDecoded() bool {
	if v.at == 0 {
		return true
	}
	if len(v.object.text) > pacedBytes && !v.object.mayBegin(len(v.source())) {
		return false
	}
	if most := decodedMost * len(v.object.text); most <= MemoryMax {
		return v.object.Fits(min(most, MemoryMax-v.object.memory()))
	}
	text := v.source()
	return v.object.Fits(decodedByte*len(text) + decodedObject*strings.Count(text, "{") + decodedElement*strings.Count(text, ","))
}

// memory returns how many bytes o uses in addition to its text.
func (o *Object) memory() int {
	return (cap(o.nodes)+cap(o.saved))*nodeBytes + cap(o.arena) + cap(o.plain) + o.indexed*indexBytes
}

// mayGrow reports whether a slice of that capacity may grow by n bytes. append grows it
// by at least a quarter of its capacity.
func (o *Object) mayGrow(capacity, n int) bool { return o.Fits(max(n, capacity/4)) }

// growNodes makes room for another node. It returns false if that is not allowed.
func (o *Object) growNodes() bool {
	if !o.mayGrow(cap(o.nodes)*nodeBytes, nodeBytes) {
		return false
	}
	o.nodes = append(o.nodes, node{})[:len(o.nodes)]
	return true
}

// grown records an error if the arena, which had that capacity, has grown beyond what
// the Object may use. It is for text whose length is known only after it was appended.
func (o *Object) grown(from int) {
	if cap(o.arena) != from {
		o.Fits(0)
	}
}

// arenaFits reports whether n more bytes fit into the arena of edits.
func (o *Object) arenaFits(n int) bool {
	return n <= cap(o.arena)-len(o.arena) || o.mayGrow(cap(o.arena), n)
}
