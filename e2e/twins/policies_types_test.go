package twins

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery/cached/memory"
	k8sscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/restmapper"
	"k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// typeNumber matches the number that kube-controller-manager appends to the kind in names of types:
// the time in nanoseconds.
var typeNumber = regexp.MustCompile(`\b([A-Z][A-Za-z]+?)\d+\b`)

// compareTypes compares the warnings in the status of the ValidatingAdmissionPolicies that
// fastadmit follows with those of kube-controller-manager's type checker, which is made as in
// k8s.io/kubernetes cmd/kube-controller-manager/app/validatingadmissionpolicystatus.go. Some must
// have warnings.
func (tw *policyTwins) compareTypes(t *testing.T) {
	t.Helper()
	discovery := memory.NewMemCacheClient(tw.on[1].Client.Discovery())
	upstream := &validating.TypeChecker{
		SchemaResolver: resolver.NewDefinitionsSchemaResolver(openapi.GetOpenAPIDefinitions, k8sscheme.Scheme, apiextensionsscheme.Scheme).
			Combine(&resolver.ClientDiscoveryResolver{Discovery: discovery}),
		RestMapper: restmapper.NewDeferredDiscoveryRESTMapper(discovery),
	}
	var list admissionregistrationv1.ValidatingAdmissionPolicyList
	cluster.Await(t, "type checks of all policies", func() error {
		client := tw.on[1].Client.CoreV1().RESTClient()
		text, err := client.Get().AbsPath("/apis/policies.fastadmit.io/v1/validatingadmissionpolicies").Do(t.Context()).Raw()
		if err != nil {
			return err
		}
		list = admissionregistrationv1.ValidatingAdmissionPolicyList{}
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		for i := range list.Items {
			p := &list.Items[i]
			compiles := len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == "True"
			if p.Status.ObservedGeneration != p.Generation || compiles && p.Status.TypeChecking == nil {
				return fmt.Errorf("%s has the status %+v", p.Name, p.Status)
			}
		}
		return nil
	})
	warned := 0
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.TypeChecking == nil { // the policy does not compile
			continue
		}
		got, want := shownWarnings(t, p.Status.TypeChecking.ExpressionWarnings), shownWarnings(t, upstream.Check(p))
		if got != want {
			t.Errorf("%s: the type warnings differ\ngot  %s\nwant %s", p.Name, got, want)
		}
		warned += len(p.Status.TypeChecking.ExpressionWarnings)
	}
	if t.Logf("%d type warnings of %d policies", warned, len(list.Items)); warned < 100 {
		t.Errorf("got %d type warnings, want 100", warned)
	}
}

func shownWarnings(t *testing.T, warnings []admissionregistrationv1.ExpressionWarning) string {
	t.Helper()
	text, err := json.MarshalIndent(warnings, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return typeNumber.ReplaceAllString(string(text), "$1#")
}
