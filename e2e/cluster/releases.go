package cluster

import (
	"os"
	"slices"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/tally"
)

// EachRelease calls f in a subtest with the newest release of Kubernetes, and with tally.Full then with each older one
// that fastadmit emulates.
func EachRelease(t *testing.T, f func(t *testing.T, release admission.Version)) {
	t.Helper()
	names := admission.Versions()
	slices.Reverse(names)
	if os.Getenv(tally.Full) == "" {
		names = names[:1]
	}
	for _, name := range names {
		release, _, err := admission.ParseVersion(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { f(t, release) })
	}
}
