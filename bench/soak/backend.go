package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/fastadmit/fastadmit/bench/apiserver"
)

const (
	// answerBytes is the size of the large answers of backends.
	answerBytes = 8 << 20

	// backendPause is how long a slow backend waits. It is longer than webhookSeconds.
	backendPause = 7 * time.Second
)

// newBackend starts the server that ImagePolicyWebhook and InitialResources call. It allows all
// images and returns the same usage for each. Images of an attack get answers that are large, late
// or failures.
func newBackend() *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/images", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		var reason string
		switch {
		case bytes.Contains(body, []byte(`"large.example.com/`)):
			reason = strings.Repeat("x", answerBytes)
		case bytes.Contains(body, []byte(`"slow.example.com/`)):
			time.Sleep(backendPause)
		case bytes.Contains(body, []byte(`"failing.example.com/`)):
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":{"allowed":true,"reason":%q}}`, reason)
	})
	mux.HandleFunc("/api/v1/query", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"v":"100"},"value":[1764000000.123,`+
			`"100"]}]}}`)
	})
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	return httptest.NewServer(mux)
}

// newWebhook starts the webhook of webhookConfiguration. It allows all objects. Its answers for
// the namespaces of an attack are large, late, failures, or headers without end.
func newWebhook() *httptest.Server {
	return httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			APIVersion string
			Request    struct{ UID, Namespace string }
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var more string
		switch review.Request.Namespace {
		case "causes":
			more = `,"status":{"details":{"causes":[{}` + strings.Repeat(",{}", answerBytes/3) + `]}}`
		case "warnings":
			more = `,"warnings":["w"` + strings.Repeat(`,"w"`, answerBytes/4) + `]`
		case "slow":
			time.Sleep(backendPause)
		case "failing":
			http.Error(w, "no", http.StatusInternalServerError)
			return
		case "flooding":
			flood(w)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":%q,"response":{"uid":%q,"allowed":true%s}}`, review.APIVersion,
			review.Request.UID, more)
	}))
}

// flood sends informational answers until the caller leaves.
func flood(w http.ResponseWriter) {
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		return // it is HTTP/2, which the server does not offer
	}
	conn, _, err := hijacker.Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	answers := []byte(strings.Repeat("HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n", 1000))
	for err == nil {
		_, err = conn.Write(answers)
	}
}

// backendFiles are the configuration files with the backend's address.
func backendFiles(url string) map[string][]byte {
	return map[string][]byte{
		"image.yaml":       []byte("imagePolicy: {kubeConfigFile: image.kubeconfig, defaultAllow: true}\n"),
		"image.kubeconfig": apiserver.Kubeconfig(url + "/images"),
		"initial.yaml": fmt.Appendf(nil, `apiVersion: fastadmit.io/v1alpha1
kind: InitialResourcesConfiguration
source: {url: %q}
`, url),
	}
}
