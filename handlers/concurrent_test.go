package handlers_test

import (
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/handlers"
)

// TestConcurrently has each plugin answer its golden cases in several goroutines at once.
// The race detector then finds memory that requests share. The packages of the plugins send
// one request after the other, so "make test" runs them without the race detector.
func TestConcurrently(t *testing.T) {
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		t.Run(p.Name, func(t *testing.T) {
			admissiontest.Concurrently(t, p, strings.ToLower(p.Name)+"/testdata")
		})
	}
}
