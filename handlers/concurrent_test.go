package handlers_test

import (
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/handlers"
)

// TestConcurrently has each plugin answer its golden cases in several goroutines at
// once. With the race detector this shows what requests share that they must not; the
// packages of the plugins ask one thing after the other, so "make test" runs
// them without it.
func TestConcurrently(t *testing.T) {
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		t.Run(p.Name, func(t *testing.T) {
			admissiontest.Concurrently(t, p, strings.ToLower(p.Name)+"/testdata")
		})
	}
}
