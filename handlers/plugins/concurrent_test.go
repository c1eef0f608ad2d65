package plugins_test

import (
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/handlers/handlertest"
	"github.com/fastadmit/fastadmit/handlers/plugins"
)

// TestConcurrently has each plugin answer its golden cases in several goroutines at
// once. With the race detector this shows what requests share that they must not; the
// packages of the plugins ask one thing after the other, so "make test" runs
// them without it.
func TestConcurrently(t *testing.T) {
	for _, p := range plugins.InTree(plugins.DefaultOptions()) {
		t.Run(p.Name, func(t *testing.T) {
			handlertest.Concurrently(t, p, "../"+strings.ToLower(p.Name)+"/testdata")
		})
	}
}
