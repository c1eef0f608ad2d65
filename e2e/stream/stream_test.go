package stream

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestNote counts answers of API servers that are ready and that are not.
func TestNote(t *testing.T) {
	const failed = `failed calling webhook "a.example.com": failed to call webhook: Post "https://fastadmit.fastadmit.svc:443/a": `
	noService := apierrors.NewInternalError(errors.New(failed + `service "fastadmit" not found`))
	noEndpoints := apierrors.NewInternalError(errors.New(failed + `no endpoints available for service "fastadmit"`))
	timeout := apierrors.NewInternalError(errors.New(`failed calling webhook "a.example.com": context deadline exceeded`))
	refused := errors.New("connection refused")
	f := func(err error, down bool, lost, unanswered int) {
		t.Helper()
		s := &Stream{texts: make(map[string]int)}
		if s.note(err, down, 0); s.lost != lost || s.unanswered != unanswered {
			t.Errorf("%v, down %v: got %d lost and %d unanswered, want %d and %d", err, down, s.lost, s.unanswered, lost, unanswered)
		}
	}
	for _, down := range []bool{false, true} {
		f(nil, down, 0, 0)
		f(errNotDenied, down, 0, 0)
		f(timeout, down, 1, 0)
	}
	f(refused, false, 1, 0)
	f(refused, true, 0, 1)
	for _, unread := range []error{noService, noEndpoints} {
		f(unread, false, 1, 0)
		f(unread, true, 0, 1)
	}
}
