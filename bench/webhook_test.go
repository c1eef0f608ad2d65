package bench

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/corpus"
)

// A review contains the fields that the webhooks of the tests read.
type review struct {
	APIVersion string
	Kind       string
	Request    struct {
		UID    string
		Name   string
		Object json.RawMessage
	}
}

// newWebhook starts a webhook over TLS and returns it as a target.
func newWebhook(t testing.TB, answer func(w http.ResponseWriter, r *review)) Target {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		var r review
		if err := json.Unmarshal(body, &r); err != nil {
			t.Errorf("the webhook got %q: %v", body, err)
		}
		answer(w, &r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return Target{URL: server.URL + "/mutate", TLS: &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}
}

// response renders an answer with these fields in its response.
func response(r *review, fields string) string {
	return fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":%q,"response":{"uid":%q,%s}}`, r.APIVersion, r.Request.UID, fields)
}

// allow is a webhook that allows all.
func allow(w http.ResponseWriter, r *review) { io.WriteString(w, response(r, `"allowed":true`)) }

// patched are the fields of a response with a patch.
func patched(patch string) string {
	return `"allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(patch)) + `"`
}

// pod is a mix of one review, which creates a Pod.
func pod(t testing.TB, version string) *Mix {
	t.Helper()
	name := "pods-create-" + version + "-1"
	r, err := NewRecording(name, corpus.MustRead(name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return mix(t, r)
}

func mix(t testing.TB, recordings ...*Recording) *Mix {
	t.Helper()
	m, err := NewMix(recordings, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// run runs a config that must be valid.
func run(t testing.TB, config Config) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	result, err := Run(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("the run did not end in time: %+v", result)
	}
	return result
}
