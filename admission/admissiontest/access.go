package admissiontest

import (
	"context"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
)

// AccessChain returns a chain of one plugin in a cluster with these objects. answer sets
// the status of each SubjectAccessReview that the plugin sends.
func AccessChain(t testing.TB, plugin admission.Plugin, answer func(r *authorizationv1.SubjectAccessReview),
	objects ...runtime.Object) *admission.Chain {
	t.Helper()
	chain, err := newChain(plugin, admission.Enabled{}, cluster.Options{
		Objects:   append([]runtime.Object{}, objects...),
		Authorize: func(_ context.Context, r *authorizationv1.SubjectAccessReview) { answer(r) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return chain
}
