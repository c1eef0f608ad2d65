package server

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/imagereview"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

const (
	imageRules = "imageReview: {rules: [{name: pinned, requireDigest: true}]}\n"
	imagesHead = `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","metadata":{},"spec":`
)

// imageQuestion returns an ImageReview for an image.
func imageQuestion(image string) []byte {
	return []byte(imagesHead + `{"containers":[{"image":"` + image + `"}],"namespace":"shop"},"status":{"allowed":false}}`)
}

// TestImageReviewRefused has a review whose context has ended, and one that is too large.
func TestImageReviewRefused(t *testing.T) {
	s := newIdleServer(new(servertest.Buffer))
	s.UseImages(&imagereview.Policy{Rules: []imagereview.Rule{{Name: "pinned", RequireDigest: true}}})
	i := s.images.Load()
	f := func(image string, start time.Time, code int, want string, errored uint64) {
		t.Helper()
		ctx := new(fasthttp.RequestCtx)
		ctx.Request.SetRequestURI("/imagereview?timeout=1s")
		ctx.Request.SetBody(imageQuestion(image))
		s.answerImages(ctx, new(conn), i, call{endpoint: i.endpoint, start: start, operation: codec.OtherOperation.Index()})
		if got, body := ctx.Response.StatusCode(), string(ctx.Response.Body()); got != code || !strings.Contains(body, want) {
			t.Errorf("got %d %s, want %d with %s", got, body, code, want)
		}
		if got := i.endpoint.metrics.decisions[codec.OtherOperation.Index()][admission.OutcomeErrored].Get(); got != errored {
			t.Errorf("got %d questions that failed, want %d", got, errored)
		}
	}
	f(strings.Repeat("a", codec.StringMax+1), time.Now().Add(time.Hour), http.StatusRequestEntityTooLarge,
		"bytes of a string, the maximum", 0)
	f("nginx", time.Now().Add(-time.Second), http.StatusInternalServerError, "ImageReview: no time left: context deadline exceeded", 1)
}
