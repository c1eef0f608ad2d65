package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/imagepolicywebhook"
	"github.com/fastadmit/fastadmit/handlers/initialresources"
	"github.com/fastadmit/fastadmit/handlers/mutatingadmissionpolicy"
	"github.com/fastadmit/fastadmit/handlers/noderestriction"
	"github.com/fastadmit/fastadmit/handlers/podsecurity"
	"github.com/fastadmit/fastadmit/handlers/resourcequota"
	"github.com/fastadmit/fastadmit/internal/allocs"
)

// A refuser never grants memory.
type refuser struct{}

func (refuser) GrantMemory() bool { return false }

func (refuser) GrantValues(int) bool { return false }

// TestNoMemory has large reviews that plugins decode, or collect values of. Each plugin must
// ask for memory first, and allocate nothing if there is none.
func TestNoMemory(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"v":"100"},`+
			`"value":[1764000000.123,"100"]}]}}`)
	}))
	t.Cleanup(server.Close)
	objects := []kruntime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace",
			Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "namespace", Name: "q"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}},
	}
	f := func(name string, plugin admission.Plugin, enabled admission.Enabled, phase admission.Phase, body []byte) {
		t.Helper()
		state, err := cluster.New(cluster.Options{Objects: objects, Kinds: cluster.KindsOf(plugin.Needs...)})
		if err == nil {
			err = state.Follow(t.Context(), plugin.AllNeeds(enabled.Config)...)
		}
		if err != nil {
			t.Fatal(err)
		}
		chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: enabled}, state, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, ctx := range []context.Context{t.Context(), context.WithValue(t.Context(), codec.MemoryKey{}, refuser{})} {
			review := codec.Acquire()
			defer review.Release()
			if err := review.Decode(body); err != nil {
				t.Fatal(err)
			}
			var outcome admission.Outcome
			var err error
			made := allocs.Bytes(func() { outcome, err = chain.Review(ctx, review, phase) })
			if got, want := errors.Is(err, codec.ErrNoMemory), ctx != t.Context(); got != want {
				t.Errorf("%s: got %s, %v, want that there is no memory: %v", name, outcome, err, want)
			}
			if ctx != t.Context() && made > 2<<20 {
				t.Errorf("%s: allocated %d bytes", name, made)
			}
		}
	}
	const many = 20_000
	list := func(element string) string { return "[" + strings.Repeat(element+",", many-1) + element + "]" }
	pod := `{"metadata":{},"spec":{"containers":` + list("{}") + `}}`
	create := admissiontest.Body(codec.Create, "v1/pods", pod)
	f("PodSecurity", podsecurity.Plugin(), admission.Enabled{}, admission.Validate, create)
	f("PodSecurity, the same images", podsecurity.Plugin(), admission.Enabled{}, admission.Validate,
		admissiontest.UpdateBody("v1/pods", pod, pod))
	f("ResourceQuota", resourcequota.Plugin(), admission.Enabled{}, admission.Validate, create)
	f("NodeRestriction", noderestriction.Plugin(), admission.Enabled{}, admission.Mutate, []byte(strings.Replace(
		string(admissiontest.UpdateBody("v1/nodes", `{"metadata":{"name":"n1"},"spec":{"taints":`+list("{}")+`}}`,
			`{"metadata":{"name":"n1"},"spec":{"taints":[]}}`)),
		`"name":"name","namespace":"namespace",`, `"name":"n1",`+strings.TrimSuffix(byNode, `,"were":{`)+`,`, 1)))

	images := admission.Enabled{Config: configs["ImagePolicyWebhook"], Kubeconfig: []byte(unreachable)}
	f("ImagePolicyWebhook, images", imagepolicywebhook.Plugin(), images, admission.Validate,
		admissiontest.Body(codec.Create, "v1/pods", `{"spec":{"containers":`+list(`{"image":"`+strings.Repeat("x", 100)+`"}`)+`}}`))
	f("ImagePolicyWebhook, annotations", imagepolicywebhook.Plugin(), images, admission.Validate,
		admissiontest.Body(codec.Create, "v1/pods",
			`{"metadata":{"annotations":{"a.image-policy.k8s.io/b":"`+strings.Repeat("x", 4<<20)+`"}},"spec":{}}`))
	f("InitialResources", initialresources.Plugin(),
		admission.Enabled{Config: []byte(`{"apiVersion":"fastadmit.io/v1alpha1","kind":"InitialResourcesConfiguration","source":{"url":"` +
			server.URL + `"}}`)},
		admission.Mutate, admissiontest.Body(codec.Create, "v1/pods",
			`{"spec":{"containers":[`+
				strings.TrimSuffix(strings.Repeat(`{"name":"`+strings.Repeat("x", 40_000)+`","image":"a:v1"},`, 100), ",")+`]}}`))
	f("MutatingAdmissionPolicy", mutatingadmissionpolicy.Plugin(), admission.Enabled{
		Config: []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: " +
			"MutatingAdmissionPolicyConfiguration\nstaticManifestsDir: policies\n"),
		Manifests: []admission.File{{Name: "p.yaml", Content: []byte(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "/spec/containers/0/image", value: "b"}]'}}]
  reinvocationPolicy: Never
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: p}
`)}},
	}, admission.Mutate, create)
}
