package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/fastadmit/fastadmit/bench/apiserver"
	"github.com/fastadmit/fastadmit/corpus"
)

const (
	// webhookSeconds is the timeout of the webhook.
	webhookSeconds = 5

	// answersAtOnce is how many reviews wait for a large, late or failed answer of a backend at once.
	answersAtOnce = 20

	// scrapesAtOnce is how many requests for the metrics are sent at once.
	scrapesAtOnce = 64
)

// hostile are the namespaces for whose objects the webhook misbehaves.
var hostile = []string{"causes", "warnings", "slow", "failing", "flooding"}

// webhookConfiguration has one webhook, for objects that no recording has.
func webhookConfiguration(webhook *httptest.Server) []byte {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	return fmt.Appendf(nil, `apiVersion: `+apiserver.WebhookVersion+`
kind: ValidatingWebhookConfiguration
metadata: {name: soak}
webhooks:
- name: soak.example.com
  clientConfig: {url: %q, caBundle: %s}
  rules:
  - {apiGroups: [soak.example.com], apiVersions: ["*"], operations: ["*"], resources: [hooked]}
  failurePolicy: Fail
  matchPolicy: Exact
  sideEffects: None
  timeoutSeconds: %d
  admissionReviewVersions: [v1]
`, webhook.URL, base64.StdEncoding.EncodeToString(authority), webhookSeconds)
}

// hooked sends reviews of a namespace for whose objects the webhook misbehaves.
func (a *attacks) hooked(ctx context.Context, from string, random *rand.Rand) int {
	review := soakReview("hooked", hostile[random.IntN(len(hostile))], `"text":""`)
	return a.many(answersAtOnce, func() int { return a.postTo(ctx, from, "/validate", token, review) })
}

// images sends reviews of Pods for whose images the backend of ImagePolicyWebhook misbehaves.
func (a *attacks) images(ctx context.Context, from string, random *rand.Rand) int {
	host := []string{"large", "slow", "failing"}[random.IntN(3)]
	review := bytes.ReplaceAll(corpus.MustRead("pods-create-v1-1.json"), []byte(`"namespace":"shop"`), []byte(`"namespace":"mallory"`))
	return a.many(answersAtOnce, func() int {
		// A new image each time, because answers are cached.
		image := fmt.Appendf(nil, `"image":"%s.example.com/i%d/`, host, rand.Uint32()) //nolint:gosec // no secret
		return a.postTo(ctx, from, "/validate", token, bytes.ReplaceAll(review, []byte(`"image":"`), image))
	})
}

// scrape asks for the metrics many times at once.
func (a *attacks) scrape(ctx context.Context, from string, _ *rand.Rand) int {
	return a.many(scrapesAtOnce, func() int { return get(ctx, from, a.server.target.MetricsURL) })
}

// get requests a URL on a new connection from an address, and returns the status of the answer, 0
// without one.
func get(ctx context.Context, from, url string) int {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0
	}
	return statusOf(transport, request)
}

// many attacks n times at once. It returns the highest status, 0 if one attack has no answer.
func (a *attacks) many(n int, once func() int) int {
	var group sync.WaitGroup
	statuses := make([]int, n)
	for i := range statuses {
		group.Go(func() { statuses[i] = once() })
	}
	group.Wait()
	highest := statuses[0]
	for _, status := range statuses {
		if status == 0 {
			return 0
		}
		highest = max(highest, status)
	}
	return highest
}
