package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fastadmit/fastadmit/bench/apiserver"
)

const (
	// parameters are how many ConfigMaps of parameterBytes a tenant has; together they take more than
	// the cache of a kind.
	parameters     = 40
	parameterBytes = 900_000

	// accounts are how many ServiceAccounts a tenant has, with so many secrets each: 1.2 MB.
	accounts       = 100
	accountSecrets = 70_000

	// expiredEvery is the time between two times in which all watches get 410, and expiredFor how long
	// each takes.
	expiredEvery = 90 * time.Second
	expiredFor   = 20 * time.Second

	// requestsMax is how many requests to the API server a second the server promises to send at most, and
	// requestsBurst how many more at once (cluster connect.go). Half as much again is allowed for
	// those that are in flight.
	requestsMax, requestsBurst = 75, 100

	// eventEvery is the time between two events of eventBytes.
	eventEvery = 2 * time.Minute
	eventBytes = 300 << 20
)

// parameterPolicy reads its parameters from the ConfigMaps of an object's namespace. The tenants of the
// other namespaces write their own.
const parameterPolicy = `apiVersion: ` + apiserver.PolicyVersion + `
kind: ValidatingAdmissionPolicy
metadata: {name: parameters}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: ["soak.example.com"], apiVersions: ["*"], operations: ["*"], resources: [parameterized]}
  validations:
  - expression: params.data.allowed == object.text
---
apiVersion: ` + apiserver.PolicyVersion + `
kind: ValidatingAdmissionPolicyBinding
metadata: {name: parameters}
spec:
  policyName: parameters
  validationActions: [Deny]
  paramRef: {selector: {matchLabels: {soak: parameter}}, parameterNotFoundAction: Deny}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: parameter, namespace: shop, labels: {soak: parameter}}
data: {allowed: good}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: mallory}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: mallory}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: kube-system}
`

// tenants are the namespaces of attackers.
func tenants() []byte {
	var b bytes.Buffer
	for _, name := range append([]string{"mallory"}, hostile...) {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\n", name)
	}
	return b.Bytes()
}

// fill adds the large objects of a tenant.
func fill(api *apiserver.Server) {
	text := strings.Repeat("x", parameterBytes)
	for i := range parameters {
		name := fmt.Sprintf("large-%d", i)
		api.Add("/api/v1/configmaps", large(name, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{`+
			`"namespace":"mallory","name":%q,"uid":%[1]q,"resourceVersion":"5","labels":{"soak":"parameter"}},"data":{"allowed":%q}}`,
			text))
	}
	secrets := `{"name":"s"}` + strings.Repeat(`,{"name":"secrets"}`, accountSecrets)
	for i := range accounts {
		name := fmt.Sprintf("large-%d", i)
		api.Add("/api/v1/serviceaccounts", large(name, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{`+
			`"namespace":"mallory","name":%q,"uid":%[1]q,"resourceVersion":"5"},"secrets":[%s]}`, secrets))
	}
}

// large returns an object of the tenant. The text has places for its name and for what makes it large.
func large(name, text, content string) apiserver.Object {
	return apiserver.Object{Namespace: "mallory", Name: name, Content: fmt.Appendf(nil, text, name, content)}
}

// clusterAttacks attack through the API server.
type clusterAttacks struct {
	api     *apiserver.Server
	fastest atomic.Int64 // most requests while watches expire
}

// expire answers all watches with 410 for some time.
func (c *clusterAttacks) expire(ctx context.Context, _ string, _ *rand.Rand) int {
	before := c.api.Requests.Load()
	c.api.Expire(true)
	select {
	case <-ctx.Done():
	case <-time.After(expiredFor):
	}
	c.api.Expire(false)
	c.fastest.Store(max(c.fastest.Load(), c.api.Requests.Load()-before))
	return http.StatusGone
}

// largeEvent sends an event that is too large to all watches of either kind.
func (c *clusterAttacks) largeEvent(_ context.Context, _ string, random *rand.Rand) int {
	path, kind := "/api/v1/configmaps", "ConfigMap"
	if random.IntN(2) == 0 {
		path, kind = "/api/v1/serviceaccounts", "ServiceAccount"
	}
	c.api.Publish(path, func(w io.Writer) error { return writeLarge(w, kind) })
	return http.StatusOK
}

func writeLarge(w io.Writer, kind string) error {
	_, err := fmt.Fprintf(w, `{"type":"ADDED","object":{"apiVersion":"v1","kind":%q,"metadata":{"namespace":"mallory","name":"event",`+
		`"uid":"e","resourceVersion":"20","annotations":{"text":"`, kind)
	piece := strings.Repeat("x", 1<<20)
	for i := 0; err == nil && i < eventBytes; i += len(piece) {
		_, err = io.WriteString(w, piece)
	}
	if err == nil {
		_, err = io.WriteString(w, "\"}}}}\n")
	}
	return err
}

// judge returns an error if the server sent more requests than it promises.
func (c *clusterAttacks) judge() error {
	limit := requestsMax*int64(expiredFor/time.Second) + requestsBurst
	got := c.fastest.Load()
	fmt.Printf("requests to the API server in %s of expired watches: at most %d\n", expiredFor, got)
	if got > limit {
		return fmt.Errorf("the server sent %d requests to the API server in %s, want at most %d", got, expiredFor, limit)
	}
	return nil
}
