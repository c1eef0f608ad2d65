package validatingadmissionpolicy

import (
	"fmt"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// TestParams evaluates a policy with each of its parameters.
func TestParams(t *testing.T) {
	const policy = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"p"},"spec":{` +
		constraints + `,
		"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},
		"validations":[{"expression":"params == null ? object.metadata.name == 'name' : params.data.allowed == object.metadata.name",
		"messageExpression":"'only ' + params.data.allowed"}]}}`
	const binding = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding",` +
		`"metadata":{"name":%q},"spec":{"policyName":"p",%s"validationActions":["Deny"]}}`
	param := func(namespace, name, allowed string) admission.ParamObject {
		return admission.ParamObject{Namespace: namespace, Name: name, JSON: fmt.Appendf(nil, `{"data":{"allowed":%q}}`, allowed)}
	}
	f := func(want string, refs ...string) {
		t.Helper()
		files := []admission.File{{Name: "p", Content: []byte(policy), FromAPI: true}}
		for i, ref := range refs {
			files = append(files, admission.File{Name: fmt.Sprint("b", i), Content: fmt.Appendf(nil, binding, fmt.Sprint("b", i), ref),
				FromAPI: true})
		}
		plugin := Plugin()
		enabled := admission.Enabled{
			Config:    []byte(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ValidatingAdmissionPolicyConfiguration"}`),
			Manifests: files,
			Params: []admission.ParamKind{{APIVersion: "v1", Kind: "ConfigMap", Namespaced: true, Objects: []admission.ParamObject{
				param("namespace", "a", "name"), param("namespace", "b", "b-pod"), param("other", "c", "c-pod"),
			}}},
		}
		needs := plugin.AllNeeds(enabled.Config)
		state, err := cluster.New(cluster.Options{Embedded: true, Kinds: cluster.KindsOf(needs...)})
		if err == nil {
			err = state.Follow(t.Context(), needs...)
		}
		if err != nil {
			t.Fatal(err)
		}
		chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: enabled}, state, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := answer(t, chain, admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"name"}}`)); got != want {
			t.Errorf("%s: got %q, want %q", refs, got, want)
		}
	}
	ref := func(more string) string { return `"paramRef":{"parameterNotFoundAction":"Deny",` + more + `},` }
	const denied = "ValidatingAdmissionPolicy: pods \"name\" is forbidden: ValidatingAdmissionPolicy 'p' with binding '%s' " +
		"denied request: "
	f("", ref(`"name":"a"`))
	f(fmt.Sprintf(denied, "b0")+"only b-pod", ref(`"name":"b"`))
	f(fmt.Sprintf(denied, "b0")+"only c-pod", ref(`"name":"c","namespace":"other"`))
	f(fmt.Sprintf(denied, "b0")+"only b-pod", ref(`"selector":{}`))
	f(fmt.Sprintf(denied, "b1")+"only c-pod", ref(`"name":"a"`), ref(`"name":"c","namespace":"other"`), "")
	f("", "") // params is null
	f("", ref(`"name":"a"`), "")
	f(fmt.Sprintf(denied, "b0")+"failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
		ref(`"name":"c"`))
}
