package app

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/registration/pathtoken"
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

// TestImageReview sends ImageReviews as kube-apiserver does, to a server without
// plugins, and changes the rules.
func TestImageReview(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	servertest.WriteFile(t, file, configHead+imageRules)
	s := serve(t, nil, "--config="+file)
	f := func(code int, want string, raw []byte) {
		t.Helper()
		response, body := s.Open(t).Send(raw)
		if response.StatusCode != code || !strings.Contains(string(body), want) ||
			response.Header.Get("Content-Type") != "application/json" {
			t.Errorf("got %s %s, want %d with %s", response.Status, body, code, want)
		}
	}
	const path = "/imagereview?timeout=30s"
	pinned := "nginx@sha256:" + strings.Repeat("0", 64)
	f(200, `"status":{"allowed":true}}`, servertest.Request(path, imageQuestion(pinned)))
	f(200, `"status":{"allowed":false,"reason":"image nginx may not run: it is not named by its digest (rule pinned)",`+
		`"auditAnnotations":{"refused-by-rule":"pinned"}}}`,
		servertest.Request(path, imageQuestion("nginx")))
	f(400, `kind: got \"AdmissionReview\", want \"ImageReview\"`, servertest.Request(path, corpus.MustRead(servertest.PodCreate)))
	f(400, "cannot read ImageReview", servertest.Request(path, []byte(imagesHead)))
	f(404, "or /imagereview", servertest.Request("/imagereviews", imageQuestion("nginx")))
	f(404, "or /imagereview", servertest.Request("/x/imagereview", imageQuestion("nginx")))
	f(405, "method: got GET", []byte("GET /imagereview HTTP/1.1\r\nHost: a\r\n\r\n"))
	f(415, "Content-Type", servertest.Request(path, imageQuestion("nginx"), "Content-Type: text/plain"))
	f(411, "Content-Length", []byte("POST /imagereview HTTP/1.1\r\nHost: a\r\nContent-Type: "+
		"application/json\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f(413, "body: got more than",
		[]byte(fmt.Sprintf("POST /imagereview HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
			32<<20+1)))
	many := strings.Repeat(`{"image":"nginx"},`, 10_000)
	f(200, "; and 9996 more", servertest.Request(path, []byte(imagesHead+`{"containers":[`+many+`{"image":"nginx"}]}}`)))
	f(200, `"allowed":false`, servertest.Request(path,
		[]byte(imagesHead+`{"containers":[{"image":"nginx"}],"annotations":{"a.image-policy.k8s.io/b":"`+
			strings.Repeat("x", 1<<20)+`"}}}`)))
	page := s.Get(t, "/metrics", 200)
	for _, series := range []string{
		`fastadmit_requests_total{webhook="imagereview",operation="other",decision="allowed"} 1`,
		`fastadmit_requests_total{webhook="imagereview",operation="other",decision="denied"} 3`,
		`fastadmit_request_duration_seconds_count{webhook="imagereview"} 4`,
	} {
		if !strings.Contains(page, series+"\n") {
			t.Errorf("got no %s in the metrics", series)
		}
	}
	if !strings.Contains(s.Log.String(),
		`"endpoint":"imagereview","namespace":"shop","rule":"pinned","message":"image nginx may not run`) {
		t.Errorf("got no refusal in the log: %s", s.Log.String())
	}

	servertest.WriteFile(t, file, configHead+"imageReview: {rules: [{name: all, refusedRepositories: [docker.io]}]}\n")
	servertest.Until(t, "the rules changed", func() bool {
		_, body := s.Open(t).Send(servertest.Request(path, imageQuestion(pinned)))
		return strings.Contains(string(body), "(rule all)")
	})
	servertest.WriteFile(t, file, configHead+"enableAdmissionPlugins: [AlwaysAdmit]\n")
	servertest.Until(t, "there are no rules", func() bool {
		response, _ := s.Open(t).Send(servertest.Request(path, imageQuestion(pinned)))
		return response.StatusCode == http.StatusNotFound
	})
}

// TestImageReviewCallers sends ImageReviews without valid credentials.
func TestImageReviewCallers(t *testing.T) {
	dir := t.TempDir()
	file, tokens, paths := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "tokens"), filepath.Join(dir, "paths")
	token := pathtoken.New()
	servertest.WriteFile(t, file, configHead+imageRules)
	servertest.WriteFile(t, tokens, "secret,kube-apiserver,1\n")
	servertest.WriteFile(t, paths, token+"\n")
	f := func(s *running, code int, path string, headers ...string) {
		t.Helper()
		response, body := s.Open(t).Send(servertest.Request(path, imageQuestion("nginx"),
			append(headers, "Content-Type: application/json")...))
		if response.StatusCode != code || code == 200 && !strings.Contains(string(body), `"allowed":false`) {
			t.Errorf("%s %q: got %s %s, want %d", path, headers, response.Status, body, code)
		}
	}
	byToken := serve(t, nil, "--config="+file, "--token-auth-file="+tokens)
	f(byToken, 200, "/imagereview", "Authorization: Bearer secret")
	f(byToken, 401, "/imagereview", "Authorization: Bearer other")
	f(byToken, 401, "/imagereview")
	byPath := serve(t, nil, "--config="+file, "--path-token-file="+paths)
	f(byPath, 200, "/"+token+"/imagereview")
	f(byPath, 401, "/imagereview")
	f(byPath, 401, "/"+pathtoken.New()+"/imagereview")
}

// TestImageReviewFaults tests invalid rules.
func TestImageReviewFaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	f := func(rules, want string) {
		t.Helper()
		servertest.WriteFile(t, file, configHead+"enableAdmissionPlugins: [AlwaysAdmit]\nimageReview:\n  rules:\n"+rules)
		if _, errs, code := execute("", "config", "--config="+file); code != exitBroken || !strings.Contains(errs, file+want) {
			t.Errorf("%s: got exit code %d, %s, want %q", rules, code, errs, want)
		}
	}
	f("  - name: a\n    allowedRepositories:\n    - nginx\n",
		":8: imageReview.rules[0].allowedRepositories[0]: Invalid value: \"nginx\": want it to begin with a registry")
	f("  - {name: a, requireDigest: 1}\n", ":6: imageReview.rules[0].requireDigest: ")
	f("  - {name: a, requireDigests: true}\n", ":6: imageReview.rules[0].requireDigests: unknown field")
	f("  - {name: a, requireDigest: true}\n  - {name: a, requireDigest: true}\n", ":7: imageReview.rules[1].name: Duplicate value")
	f("    []\n", ":6: imageReview.rules: Required value")
	servertest.WriteFile(t, file, configHead+imageRules)
	if out, errs, code := execute("", "config", "--config="+file); code != 0 ||
		!strings.Contains(out, "imageReview:\n  rules:\n  - name: pinned\n    requireDigest: true\n") {
		t.Errorf("got exit code %d, %s%s, want the rules", code, out, errs)
	}
	if _, errs, code := execute("", "manifests", "--config="+file); code == 0 ||
		!strings.Contains(errs, "no admission plugin is enabled") {
		t.Errorf("manifests: got exit code %d, %s", code, errs)
	}
}
