package handlers_test

import (
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/handlers"
)

// TestConcurrently has each plugin answer its golden cases, then in several goroutines at once.
// The race detector then finds memory that requests share. The packages of the plugins send
// one request after the other, so "make test" runs them without the race detector. Those that import
// neither sync nor an internal package keep nothing between requests, so it does not run them with
// poisoned memory either.
func TestConcurrently(t *testing.T) {
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		t.Run(p.Name, func(t *testing.T) {
			admissiontest.Concurrently(t, p, strings.ToLower(p.Name)+"/testdata")
		})
	}
}
