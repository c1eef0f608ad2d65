package handlers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
)

// odd are invalid names that users may send, because admission comes before validation.
var odd = []string{"", ".", "..", "a/b", "%2F", "UPPER", "\x00\n\ufffd", strings.Repeat("x", 254)}

// unrecorded are reviews that are in no recording: a Pod with names of classes, a PodGroup
// with the name of a Workload, and a ResourceClaim whose owner quotas look up.
var unrecorded = []string{
	`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","userInfo":{"username":"alice"},
	"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},
	"namespace":"shop","operation":"CREATE","object":{"metadata":{"name":"p","namespace":"shop"},
		"spec":{"runtimeClassName":"r","priorityClassName":"p","serviceAccountName":"s","nodeName":"n","containers":[]}}}}`,
	`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","userInfo":{"username":"alice"},
	"kind":{"group":"scheduling.k8s.io","version":"v1alpha2","kind":"PodGroup"},
	"resource":{"group":"scheduling.k8s.io","version":"v1alpha2","resource":"podgroups"},"namespace":"shop","operation":"CREATE",
	"object":{"metadata":{"name":"g","namespace":"shop"},
		"spec":{"podGroupTemplateRef":{"workload":{"workloadName":"w","podGroupTemplateName":"t"}}}}}}`,
	`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","userInfo":{"username":"alice"},
	"kind":{"group":"resource.k8s.io","version":"v1","kind":"ResourceClaim"},
	"resource":{"group":"resource.k8s.io","version":"v1","resource":"resourceclaims"},"namespace":"shop","operation":"CREATE",
	"object":{"metadata":{"name":"c","namespace":"shop","annotations":{"resource.kubernetes.io/extended-resource-claim":"true"},
		"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","controller":true}]},"spec":{}}}}`,
}

// byAnybody is replaced by byNode, so that a node sends the review.
const (
	byAnybody = `"userInfo":{`
	byNode    = `"userInfo":{"username":"system:node:n1","groups":["system:nodes"]},"were":{`
)

// TestNoNameIsAFailure writes odd names into every recording, wherever there is a name. No
// plugin may fail: with the failure policy Ignore, users could bypass a plugin by making it
// fail. The oracle checks that the decisions are right.
func TestNoNameIsAFailure(t *testing.T) {
	if testing.Short() {
		t.Skip("plugins are called one after the other; TestConcurrently has the recordings")
	}
	var recorded [][]byte
	for _, body := range unrecorded {
		recorded = append(recorded, []byte(body))
	}
	for _, name := range corpus.Names() {
		recorded = append(recorded, corpus.MustRead(name))
	}
	var bodies [][]byte
	for _, body := range recorded {
		for _, value := range odd {
			object := renamed(t, body, value, "object", "oldObject")
			bodies = append(bodies, object, bytes.Replace(object, []byte(byAnybody), []byte(byNode), 1),
				renamed(t, body, value, "namespace", "name"))
		}
	}
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		t.Run(plugin.Name, func(t *testing.T) {
			// In a bubble, waiting for a namespace takes no time.
			synctest.Test(t, func(t *testing.T) {
				chain := chainOf(t, plugin)
				for _, body := range bodies {
					decides(t, chain, body)
				}
			})
		})
	}
}

// chainOf returns the plugin in a cluster in which all users have all permissions, with a
// quota for claims.
func chainOf(t *testing.T, plugin admission.Plugin) *admission.Chain {
	one := corev1.ResourceList{"count/resourceclaims.resource.k8s.io": resource.MustParse("1")}
	state, err := cluster.New(cluster.Options{
		Objects: []runtime.Object{&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q", UID: "u"},
			Spec:       corev1.ResourceQuotaSpec{Hard: one}, Status: corev1.ResourceQuotaStatus{Hard: one, Used: one},
		}},
		Authorize: func(_ context.Context, review *authorizationv1.SubjectAccessReview) { review.Status.Allowed = true },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Follow(t.Context(), plugin.Needs...); err != nil {
		t.Fatal(err)
	}
	enabled := admission.Enabled{Kubeconfig: []byte(unreachable)}
	switch plugin.Name {
	case "ImagePolicyWebhook":
		enabled.Config = configs[plugin.Name]
	case "EventRateLimit":
		enabled.Config = []byte(`{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration",` +
			`"limits":[{"type":"SourceAndObject","qps":1,"burst":1}]}`)
	}
	if config, ok := pastConfigs[plugin.Name]; ok {
		enabled.Config = config
	}
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: enabled}, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

func decides(t *testing.T, chain *admission.Chain, body []byte) {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
		if err := review.Decode(body); err != nil {
			t.Fatal(err)
		}
		if outcome, err := chain.Review(t.Context(), review, phase); err != nil {
			t.Errorf("%s: got %s and %.300v, want a decision on\n%.2000s", phase, outcome, err, body)
		}
	}
}

// renamed returns the review with the value in place of all names in these fields of its
// request.
func renamed(t *testing.T, body []byte, value string, fields ...string) []byte {
	t.Helper()
	var review map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&review); err != nil {
		t.Fatal(err)
	}
	request := review["request"].(map[string]any)
	if request["namespace"] != nil {
		request["namespace"] = "shop"
	}
	for _, field := range fields {
		if _, isName := request[field].(string); isName {
			request[field] = value
		}
		rename(request[field], value)
	}
	changed, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func rename(in any, value string) {
	switch in := in.(type) {
	case []any:
		for _, element := range in {
			rename(element, value)
		}
	case map[string]any:
		for key, member := range in {
			if _, isString := member.(string); isString && (key == "name" || key == "namespace" || strings.HasSuffix(key, "Name")) {
				in[key] = value
			} else if key != "managedFields" {
				rename(member, value)
			}
		}
	}
}
