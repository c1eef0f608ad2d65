package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
)

// newBackend starts the server that ImagePolicyWebhook and InitialResources call. It allows all
// images and returns the same usage for each.
func newBackend() *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/images", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":{"allowed":true}}`)
	})
	mux.HandleFunc("/api/v1/query", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"v":"100"},"value":[1764000000.123,`+
			`"100"]}]}}`)
	})
	return httptest.NewServer(mux)
}

// backendFiles are the configuration files with the backend's address.
func backendFiles(url string) map[string][]byte {
	return map[string][]byte{
		"image.yaml":       []byte("imagePolicy: {kubeConfigFile: image.kubeconfig, defaultAllow: true}\n"),
		"image.kubeconfig": kubeconfigOf(url + "/images"),
		"initial.yaml": fmt.Appendf(nil, `apiVersion: fastadmit.io/v1alpha1
kind: InitialResourcesConfiguration
source: {url: %q}
`, url),
	}
}
