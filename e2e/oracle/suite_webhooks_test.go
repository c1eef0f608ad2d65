package oracle_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

// webhooksSuite compares webhooks with good and bad answers. The webhooks of the run
// determine how many answers have warnings; there may be few.
func webhooksSuite(name string) suite {
	mutating := name == "MutatingAdmissionWebhook"
	return suite{
		name: name, generate: func(g *generator) *oracle.Case { return g.hooked(mutating) }, denies: true, changes: mutating,
		background: true, untabled: true,
		variants: []variant{{
			ours:    `{"apiVersion":"fastadmit.io/v1alpha1","kind":"WebhookAdmissionConfiguration","customResources":true}`,
			options: handlers.DefaultOptions(), world: func(g *generator) oracle.World { return g.webhooks(mutating) },
		}},
		message: hookMessage,
	}
}

var chanceInMessages = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|127\.0\.0\.1:\d+->127\.0\.0\.1:\d+| in scheme ` +
	`"[^"]*"|"mutated":(true|false)`)

// hookMessage removes random parts of a message: uids, ports, and whether an annotation says
// that the object was mutated. Upstream compares decoded objects, so a patch that adds an
// empty map changes nothing there. The objects are compared separately.
func hookMessage(message string) string { return chanceInMessages.ReplaceAllString(message, "-") }

// hooked generates a request that webhooks are called for. Mutating webhooks are not called
// for connections, which they could redirect. A Namespace keeps its labels: in-tree, it gets
// the default label back before the next webhook is called (the plugin's README).
func (g *generator) hooked(mutating bool) *oracle.Case {
	c := g.pod()
	if g.in(3) {
		c = g.other()
	}
	for c.Operation == admission.Connect || mutating && c.Kind.Kind == "Namespace" {
		c = g.pod()
	}
	c.Decoded, c.Unordered = true, true
	return c
}

// hookReplies are the answers of the webhooks: a response without its uid, or a whole body.
var hookReplies = []string{
	`"allowed":true`, `"allowed":true`, `"allowed":true,"status":{"code":500,"message":"no"}`,
	`"allowed":false`, `"allowed":false,"status":{"message":"no"}`, `"allowed":false,"status":{"reason":"Forbidden","code":403}`,
	`"allowed":false,"status":{"message":"a\nb","code":200,"details":{"name":"n","causes":[{"reason":"r","message":"m","field":"f"}],` +
		`"retryAfterSeconds":3}}`,
	`"allowed":true,"warnings":["careful","careful",""]`, `"allowed":false,"warnings":["careful too"],"auditAnnotations":{"k":"denied"}`,
	`"allowed":true,"auditAnnotations":{"k":"v","a/b":"w","":"x","é":"y"}`,
	`"allowed":true,"patchType":"JSONPatch"`, `"allowed":true,"patch":"W10="`, `"allowed":true,"patchType":"","patch":"W10="`,
	`"allowed":true,"patchType":null,"patch":null`, `"allowed":true,"patchType":"JSONPatch","patch":"not base64"`, `"allowed":"yes"`,
	`"allowed":true,"unknown":1`,
}

// hookHarmless are the indices of the replies that neither deny nor fail.
var hookHarmless = []int{0, 1, 2, 7, 9, 16}

// hookPatches are the patches of mutating webhooks. None adds only a null, as a copy of a
// missing value would: in-tree, that changes nothing (the plugin's README).
var hookPatches = []string{
	`[]`, `null`, `{}`, `[{}]`, `[1]`,
	`[{"op":"add","path":"/metadata/labels","value":{"hook":"a"}}]`,
	`[{"op":"add","path":"/metadata/labels/hook","value":"b"}]`,
	`[{"op":"add","path":"/metadata/annotations","value":{"hook":"a"}}]`,
	`[{"op":"replace","path":"/metadata/annotations","value":{"hook":"c"}}]`,
	`[{"op":"test","path":"/metadata/labels","value":null}]`, `[{"op":"test","path":"/kind","value":"Pod"}]`,
	`[{"op":"remove","path":"/metadata/labels"}]`, `[{"op":"remove","path":"/spec"},{"op":"remove","path":"/nothing"}]`,
	`[{"op":"replace","path":"/metadata/generateName","value":"hook-"}]`,
	`[{"op":"add","path":"/spec/containers/-","value":{"name":"side","image":"i","resources":{}}}]`,
	`[{"op":"copy","from":"/kind","path":"/metadata/generateName"}]`,
	`[{"op":"move","from":"/metadata/labels","path":"/metadata/annotations"}]`,
	`[{"op":"jump","path":"/metadata"}]`,
}

// The paths at which webhooks do not send one of hookReplies.
const (
	hookBeta = 1000 + iota
	hookEmpty
	hookText
	hookStatus
	hookTooMany
	hookClosed
	hookOtherUID
	hookNoResponse
	hookGarbage
	hookKinds
)

// hookPatch is the first path with a patch.
const hookPatch = 500

var hookServer = sync.OnceValue(func() *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(serveHook))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // TLS errors are expected
	server.StartTLS()
	return server
})

func serveHook(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		APIVersion string
		Request    struct{ UID string }
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		panic(err)
	}
	n, err := strconv.Atoi(r.URL.Path[1:])
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	reply := func(version, uid, response string) {
		_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":"AdmissionReview","response":{"uid":%q,%s}}`, version, uid, response)
	}
	switch {
	case n < hookPatch:
		reply(asked.APIVersion, asked.Request.UID, hookReplies[n])
	case n < hookBeta:
		encoded, _ := json.Marshal([]byte(hookPatches[n-hookPatch]))
		reply(asked.APIVersion, asked.Request.UID, `"allowed":true,"patchType":"JSONPatch","patch":`+string(encoded))
	case n == hookBeta:
		reply("admission.k8s.io/v1beta1", asked.Request.UID, hookReplies[0])
	case n == hookText:
		http.Error(w, "out of order", http.StatusBadGateway)
	case n == hookStatus:
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Status","status":"Failure","message":"nothing here","code":404}`))
	case n == hookTooMany:
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
	case n == hookClosed:
		panic(http.ErrAbortHandler)
	case n == hookOtherUID:
		reply(asked.APIVersion, "other", hookReplies[0])
	case n == hookNoResponse:
		_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":"AdmissionReview"}`, asked.APIVersion)
	case n == hookGarbage:
		_, _ = w.Write([]byte(`{"apiVersion":`))
	case n == hookKinds:
		_, _ = w.Write([]byte(`{"response":{"allowed":true}}`))
	}
}

// webhooks generates a cluster with webhook configurations. If several validating webhooks
// fail, Kubernetes reports the first failure, which is random; so at most one fails.
// Webhooks that fail early or late, and those that cannot be called, are alone.
func (g *generator) webhooks(mutating bool) oracle.World {
	world := oracle.World{Objects: []runtime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"env": "prod"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}},
	}}
	alone := !mutating && g.in(3)
	names, most := []string{"b", "a"}[g.IntN(2):], 3
	if alone {
		names, most = names[:1], 1
	}
	fails := false // one of the validating webhooks fails
	for _, name := range names {
		meta := metav1.ObjectMeta{Name: name}
		var hooks []admissionregistrationv1.MutatingWebhook
		for i := range 1 + g.IntN(most) {
			h, harmless := g.webhook(fmt.Sprintf("%s%d%s", name, i, oracle.HooksDomain), mutating, mutating || alone, fails)
			hooks = append(hooks, h)
			fails = fails || !mutating && !harmless
		}
		var configuration runtime.Object = &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: hooks}
		if !mutating {
			validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}
			for _, h := range hooks {
				validating.Webhooks = append(validating.Webhooks, admissionregistrationv1.ValidatingWebhook{
					Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy, MatchPolicy: h.MatchPolicy,
					NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector, SideEffects: h.SideEffects,
					TimeoutSeconds: h.TimeoutSeconds, AdmissionReviewVersions: h.AdmissionReviewVersions,
					MatchConditions: h.MatchConditions,
				})
			}
			configuration = validating
		}
		legacyscheme.Scheme.Default(configuration)
		world.Objects = append(world.Objects, configuration)
	}
	return world
}

// webhook generates a webhook. If uneven is true, it may fail early or late. If another is true, it does
// not fail, because another webhook does. harmless is true if the generated webhook cannot fail.
func (g *generator) webhook(name string, mutating, uneven, another bool) (w admissionregistrationv1.MutatingWebhook, harmless bool) {
	server := hookServer()
	at := g.IntN(len(hookReplies))
	if mutating && g.in(2) {
		at = hookPatch + g.IntN(len(hookPatches))
	} else if g.in(4) {
		at = hookBeta + g.IntN(hookKinds-hookBeta+1)
	}
	if !uneven && (at == hookTooMany || at == hookClosed) {
		at = hookGarbage
	}
	if another {
		at = pick(g, hookHarmless...)
	}
	url := fmt.Sprintf("%s/%d", server.URL, at)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if uneven {
		switch g.IntN(20) {
		case 0:
			url = "https://127.0.0.1:1/dead"
		case 1:
			ca = nil
		}
	}
	w = admissionregistrationv1.MutatingWebhook{
		Name:         name,
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
		Rules:        some(g, 3, g.hookRule),
		SideEffects: new(pick(g, admissionregistrationv1.SideEffectClassNone,
			admissionregistrationv1.SideEffectClassNoneOnDryRun)),
		AdmissionReviewVersions: pick(g, []string{"v1"}, []string{"v1"}, []string{"v2", "v1beta1", "v1"}),
		FailurePolicy: maybe(g, func() admissionregistrationv1.FailurePolicyType {
			return pick(g, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
		}),
		TimeoutSeconds:    maybe(g, func() int32 { return int32(5 + g.IntN(20)) }),
		NamespaceSelector: maybe(g, g.hookSelector),
		ObjectSelector:    maybe(g, g.hookSelector),
		MatchConditions:   g.hookConditions(),
	}
	w.Rules = append(w.Rules, g.hookRule())
	if mutating && g.in(2) {
		w.ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
	}
	return w, slices.Contains(hookHarmless, at)
}

func (g *generator) hookRule() admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: pick(g, []admissionregistrationv1.OperationType{"*"}, []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}),
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{"*"}, APIVersions: []string{"*"},
			Resources: pick(g, []string{"*/*"}, []string{"*/*"}, []string{"*"}, []string{"pods"}, []string{"services"}),
			Scope: maybe(g, func() admissionregistrationv1.ScopeType {
				return pick[admissionregistrationv1.ScopeType](g, "*", "*", "Namespaced", "Cluster")
			}),
		},
	}
}

func (g *generator) hookSelector() metav1.LabelSelector {
	return pick(g, metav1.LabelSelector{}, metav1.LabelSelector{}, metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}},
		metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: metav1.LabelSelectorOpNotIn,
			Values: []string{"prod"}}}},
		metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "hook",
			Operator: metav1.LabelSelectorOpDoesNotExist}}})
}

func (g *generator) hookConditions() (all []admissionregistrationv1.MatchCondition) {
	for i := range g.IntN(3) {
		all = append(all, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: pick(g,
			`true`, `true`, `request.operation != "DELETE"`, `!has(object.metadata.name) || object.metadata.name != "a"`,
			`object.kind == "Pod"`,
			`authorizer.group("").resource("pods").check("get").allowed()`, `object.spec.nothing == 1`,
			`request.userInfo.username != "bob"`)})
	}
	return all
}
