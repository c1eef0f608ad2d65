//go:build linux

package handlers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/initialresources"
)

// TestWorstEstimates is TestWorst for InitialResources with a server that knows all images,
// so that containers get requests and the annotation lists them.
func TestWorstEstimates(t *testing.T) {
	quiet(t)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"v":"100"},`+
			`"value":[1764000000.123,"100"]}]}}`)
	}))
	t.Cleanup(server.Close)
	chain := admissiontest.MustChain(t, initialresources.Plugin(),
		`{"apiVersion":"fastadmit.io/v1alpha1","kind":"InitialResourcesConfiguration","source":{"url":"`+server.URL+`"}}`)
	body := func(n int, image, rest string) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"name":"c%d","image":%q%s}`, i, strings.ReplaceAll(image, "#", strconv.Itoa(i)), rest)
		}
		containers := b.String()[1:]
		return admissiontest.Body(codec.Create, "v1/pods", `{"spec":{"initContainers":[`+containers+`],"containers":[`+containers+`]}}`)
	}
	for _, c := range []struct{ name, image, rest string }{
		{"one image", "a:v1", ""},
		{"as many images", "a#:v1", ""},
		{"requests for cpu", "a:v1", `,"resources":{"requests":{"cpu":"1"}}`},
		{"null resources", "a:v1", `,"resources":null`},
		{"requests for both", "a:v1", `,"resources":{"requests":{"cpu":"1","memory":"1"}}`},
	} {
		small, large := body(*worstN, c.image, c.rest), body(4**worstN, c.image, c.rest)
		for _, body := range [][]byte{small, large} { // each asks the server
			want := admission.OutcomePatched
			if c.name == "requests for both" {
				want = admission.OutcomeAllowed
			}
			if got := measure(t, chain, admission.Mutate, body).outcome; got != want {
				t.Errorf("%s: got %s, want %s", c.name, got, want)
			}
		}
		before := asked.Load()
		check(t, "InitialResources, "+c.name, func() cost { return measure(t, chain, admission.Mutate, small) },
			func() cost { return measure(t, chain, admission.Mutate, large) })
		if got := asked.Load(); got != before {
			t.Errorf("%s: got %d more questions, want answers that are kept", c.name, got-before)
		}
	}
	// Two resources of 32 images, each with enough samples for one query.
	if got := asked.Load(); got > 2*(32+1) {
		t.Errorf("got %d questions, want two for each image of 32 and one", got)
	}
}
