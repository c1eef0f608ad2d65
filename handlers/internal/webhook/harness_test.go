package webhook_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/mutatingadmissionwebhook"
	"github.com/fastadmit/fastadmit/handlers/validatingadmissionwebhook"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// A hook is a webhook of a configuration.
type hook struct {
	name, path string
	more       string // other fields, such as "failurePolicy: Ignore"
	rules      string // "" for all resources
	versions   string // "" for ["v1"]
}

// A backend is a server of webhooks over TLS.
type backend struct {
	*testserver.Server
	t *testing.T
	// series are the metrics of the last chain with its webhooks.
	series *metrics.Set
	// version is the release that the next chain emulates, the newest one if it is empty.
	version string
}

// newAllowing returns a backend that allows everything, and sets called when it is asked.
func newAllowing(t *testing.T, called *bool) *backend {
	t.Helper()
	return newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		*called = true
		a, _ := readAsked(t, r)
		answer(w, a.Request.UID, `"allowed":true`)
	})
}

func newBackend(t *testing.T, serve http.HandlerFunc) *backend {
	t.Helper()
	server := testserver.Unstarted(t, serve)
	server.EnableHTTP2 = true
	server.StartTLS()
	return &backend{Server: server, t: t}
}

// newReplies returns a backend that answers with the result of reply; UID in it is replaced
// by the uid of the review.
func newReplies(t *testing.T, reply func(path string) string) *backend {
	t.Helper()
	return newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, _ := readAsked(t, r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.ReplaceAll(reply(r.URL.Path), "UID", a.Request.UID))
	})
}

func (b *backend) caBundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw})
}

// webhooks returns the webhooks of a configuration as JSON.
func (b *backend) webhooks(hooks ...hook) string {
	var all []string
	for _, h := range hooks {
		ca, err := json.Marshal(b.caBundle())
		if err != nil {
			b.t.Fatal(err)
		}
		rules := `[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*/*"]}]`
		if h.rules != "" {
			rules = h.rules
		}
		versions := `["v1"]`
		if h.versions != "" {
			versions = h.versions
		}
		text := fmt.Sprintf(`{"name":%q,"clientConfig":{"url":%q,"caBundle":%s},"rules":%s,"sideEffects":"None",`+
			`"admissionReviewVersions":%s`, h.name, b.URL+h.path, ca, rules, versions)
		if h.more != "" {
			text += "," + h.more
		}
		all = append(all, text+"}")
	}
	return "[" + strings.Join(all, ",") + "]"
}

const upstreamConfig = `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"WebhookAdmissionConfiguration"}`

// chain returns a chain of the plugin for webhooks in a phase.
func (b *backend) chain(phase admission.Phase, config string, hooks ...hook) *admission.Chain {
	b.t.Helper()
	return b.chainWith(phase, config, nil, hooks...)
}

// chainWith is chain with a kubeconfig file.
func (b *backend) chainWith(phase admission.Phase, config string, kubeconfig []byte, hooks ...hook) *admission.Chain {
	b.t.Helper()
	plugin, kind := validatingadmissionwebhook.Plugin(), "ValidatingWebhookConfiguration"
	if phase == admission.Mutate {
		plugin, kind = mutatingadmissionwebhook.Plugin(), "MutatingWebhookConfiguration"
	}
	document := fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":"c"},"webhooks":%s}`, kind,
		b.webhooks(hooks...))
	b.series = metrics.NewSet()
	plugin = admissiontest.Hurried(plugin)
	if b.version != "" {
		plugin = admissiontest.Emulating(b.t, plugin, b.version)
	}
	chain, err := tryChain(b.t, cluster.Options{Metrics: b.series}, &plugin, admission.Enabled{
		Config: []byte(config), Kubeconfig: kubeconfig, Manifests: []admission.File{{Name: "a.yaml", Content: document}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return chain
}

// newChain returns a chain of a plugin.
func newChain(t *testing.T, plugin admission.Plugin, enabled admission.Enabled, objects ...runtime.Object) *admission.Chain {
	t.Helper()
	chain, err := tryChain(t, cluster.Options{}, &plugin, enabled, objects...)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// tryChain is newChain for configurations that may be invalid. The namespace of the reviews
// exists.
func tryChain(t *testing.T, o cluster.Options, plugin *admission.Plugin, enabled admission.Enabled,
	objects ...runtime.Object) (*admission.Chain, error) {
	t.Helper()
	o.Objects = slices.Concat(objects, []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace"}}})
	state, err := cluster.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Follow(t.Context(), plugin.AllNeeds(enabled.Config)...); err != nil {
		t.Fatal(err)
	}
	return admission.NewChain([]admission.Plugin{*plugin}, map[string]admission.Enabled{plugin.Name: enabled}, state, nil)
}

// asked has the fields of a review that a webhook reads.
type asked struct {
	Request struct {
		UID    string          `json:"uid"`
		Object json.RawMessage `json:"object"`
	} `json:"request"`
}

// readAsked decodes the review in a request to a webhook.
func readAsked(t *testing.T, r *http.Request) (asked, []byte) {
	body, err := io.ReadAll(r.Body)
	var a asked
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	if err != nil {
		t.Error(err)
	}
	return a, body
}

// answer answers with the fields of a response and the uid.
func answer(w http.ResponseWriter, uid, response string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,%s}}`, uid, response)
}

// patched returns a response with a JSON Patch.
func patched(t *testing.T, patch string) string {
	encoded, err := json.Marshal([]byte(patch))
	if err != nil {
		t.Error(err)
	}
	return `"allowed":true,"patchType":"JSONPatch","patch":` + string(encoded)
}

// result is the result of a review.
type result struct {
	message, patch string
	code           int32
	warnings       []string
	answer         string
}

// ask sends a review to a chain.
func ask(t *testing.T, chain *admission.Chain, phase admission.Phase, body []byte) result {
	t.Helper()
	return askIn(t.Context(), t, chain, phase, body)
}

// askIn is ask with a context.
func askIn(ctx context.Context, t *testing.T, chain *admission.Chain, phase admission.Phase, body []byte) result {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	if _, err := chain.Review(ctx, review, phase); err != nil {
		return result{message: err.Error(), code: -1}
	}
	r := result{patch: string(review.Response.Patch), answer: string(review.AppendResponse(nil))}
	if !review.Response.Allowed {
		r.message, r.code = strings.Clone(review.Response.Status.Message), review.Response.Status.Code
	}
	for _, w := range review.Response.Warnings() {
		r.warnings = append(r.warnings, strings.Clone(w))
	}
	return r
}
