package server

import (
	"context"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/turns"
)

// TestBudgetRequester checks the requester in the context of a call: the API server's client
// shares requests by it.
func TestBudgetRequester(t *testing.T) {
	review := codec.Acquire()
	defer review.Release()
	const body = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","namespace":"shop",` +
		`"userInfo":{"username":"jane"}}}`
	if err := review.Decode([]byte(body)); err != nil {
		t.Fatal(err)
	}
	s := new(Server)
	b := s.acquireContext(time.Now(), new(fasthttp.Args), review, []byte(body))
	s.load.requests.Store(1)
	if turns.Of(b) != nil || b.Value(codec.PacerKey{}) != nil {
		t.Error("a review that is alone takes turns")
	}
	s.load.requests.Store(2)
	ctx, cancel := context.WithTimeout(b, time.Second) // as for a plugin with its own timeout
	defer cancel()
	for _, ctx := range []context.Context{b, ctx} {
		r, ok := ctx.Value(cluster.CallerKey{}).(cluster.Requester)
		if !ok {
			t.Fatal("the context does not say who asks")
		}
		if user, namespace := r.Requester(); user != "jane" || namespace != "shop" {
			t.Errorf("got %q in %q", user, namespace)
		}
		if turns.Of(ctx) != &b.work {
			t.Error("the context does not say whose work it is")
		}
		if ctx.Value(codec.PacerKey{}) != codec.Pacer(&b.work) {
			t.Error("loops over the review take no turns")
		}
	}
	b.release()
	if b.Value(cluster.CallerKey{}) != nil || turns.Of(b) != nil || b.Value("other") != nil {
		t.Error("the context of a call that is over says who asks")
	}
}
