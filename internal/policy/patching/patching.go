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

	"github.com/fastadmit/fastadmit/internal/turns"
)

// copiesBytesMax is how much the operations "copy" of a JSON Patch may add to an
// object: kube-apiserver's default (k8s.io/apiserver pkg/server/config.go
// JSONPatchMaxCopyBytes).
const copiesBytesMax = 3 << 20

// limitCopies sets a variable of package jsonpatch, as kube-apiserver does.
var limitCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = copiesBytesMax })

// movedBytesMax is how many bytes operations may move in arrays before Apply looks at the
// context again. Moving the elements of an array of 1 MB takes up to 0.5 ms, so 64 MB take
// 30 ms, which is little compared to the seconds that an answer may take.
const movedBytesMax = 64 << 20

// Apply returns the document with the operations applied. It does not change document.
// The error is that of the library, or that of ctx if ctx ends before Apply is done.
func Apply(ctx context.Context, operations jsonpatch.Patch, document []byte) ([]byte, error) {
	limitCopies()
	work := turns.Of(ctx)
	defer work.Leave()
	for len(operations) > 0 {
		if err := work.Continue(ctx); err != nil {
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

// apply turns panics of the library, which some values of operations cause, into errors.
func apply(operations jsonpatch.Patch, document []byte) (after []byte, err error) {
	defer func() {
		if recover() != nil {
			after, err = nil, fmt.Errorf("a value is missing or of a wrong kind in an operation")
		}
	}()
	return operations.Apply(document)
}

// together returns how many operations to apply before looking at the context, for a document
// of size bytes. An operation at an index of an array moves the elements after it; the time of
// all others does not depend on the document.
func together(operations jsonpatch.Patch, size int) int {
	moved := 0
	for i, o := range operations {
		at, _ := o.Path() // without a path it is empty, which is no index
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
