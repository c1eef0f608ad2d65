// Package patching applies JSON Patches of webhooks and policies with kube-apiserver's
// library, in bounded time and memory.
package patching

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// copiesBytesMax is how much the operations "copy" of a JSON Patch may add to an
// object: kube-apiserver's default (k8s.io/apiserver pkg/server/config.go
// JSONPatchMaxCopyBytes).
const copiesBytesMax = 3 << 20

// limitCopies sets a variable of package jsonpatch, as kube-apiserver does.
var limitCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = copiesBytesMax })

// movedBytesMax is for how many bytes of a document operations may move elements of
// arrays before the context is looked at again. To move the elements of an array of
// 1 MB takes up to 0.5 ms, so 64 MB take 30 ms, which is little beside the seconds
// that an answer may take.
const movedBytesMax = 64 << 20

// Apply returns the document with the operations applied. It does not change document.
// The error is that of the library, or that of ctx if ctx ends before Apply is done.
func Apply(ctx context.Context, operations jsonpatch.Patch, document []byte) ([]byte, error) {
	limitCopies()
	for len(operations) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := together(operations, len(document))
		after, err := apply(operations[:n], document)
		if err != nil {
			return nil, err
		}
		document, operations = after, operations[n:]
	}
	return document, nil
}

// apply makes errors of the library's panics, which some values of operations cause.
func apply(operations jsonpatch.Patch, document []byte) (after []byte, err error) {
	defer func() {
		if recover() != nil {
			after, err = nil, fmt.Errorf("a value is missing or of a wrong kind in an operation")
		}
	}()
	return operations.Apply(document)
}

// together returns how many operations to apply to a document of that many bytes
// before the context is looked at. An operation at an index of an array moves what is
// behind it; all others take the same time whatever the document is.
func together(operations jsonpatch.Patch, size int) int {
	moved := 0
	for i, o := range operations {
		at, _ := o.Path() // without one, the text is no index either
		from, _ := o.From()
		if !isIndex(at) && !isIndex(from) {
			continue
		}
		if moved += size; moved > movedBytesMax && i > 0 {
			return i
		}
	}
	return len(operations)
}

// isIndex reports whether a JSON Pointer names an element of an array.
func isIndex(pointer string) bool {
	_, err := strconv.Atoi(path.Base(pointer))
	return err == nil
}
