package policy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fakeParams has namespaced ConfigMaps and cluster-scoped Shops.
type fakeParams map[string]labels.Set // by namespace/name

func (f fakeParams) OfKind(_ context.Context, kind admissionregistrationv1.ParamKind) (ParamObjects, bool, error) {
	switch kind.Kind {
	case "ConfigMap":
		return fakeObjects{f, true}, true, nil
	case "Shop":
		return fakeObjects{f, false}, true, nil
	case "Slow":
		return nil, true, errors.New("not yet synced")
	case "Lost":
		return nil, false, errors.New("nobody answers")
	}
	return nil, false, nil
}

type fakeObjects struct {
	fakeParams
	namespaced bool
}

func (f fakeObjects) Namespaced() bool { return f.namespaced }

func (f fakeObjects) Get(_ context.Context, namespace, name string) (*Param, error) {
	if name == "broken" {
		return nil, errors.New("cannot read it")
	}
	if _, ok := f.fakeParams[namespace+"/"+name]; !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "params"}, name)
	}
	return &Param{Namespace: namespace, Name: name}, nil
}

func (f fakeObjects) List(_ context.Context, in string, selector labels.Selector) (all []*Param, err error) {
	for key, set := range f.fakeParams {
		namespace, name, _ := strings.Cut(key, "/")
		if namespace == in && selector.Matches(set) {
			all = append(all, &Param{Namespace: namespace, Name: name})
		}
	}
	slices.SortFunc(all, func(a, b *Param) int { return strings.Compare(b.Name, a.Name) }) // not in the expected order
	return all, nil
}

// TestCollectParams has the cases of upstream's CollectParams.
func TestCollectParams(t *testing.T) {
	objects := fakeParams{"shop/a": {"env": "prod"}, "shop/b": {"env": "prod"}, "shop/c": nil, "other/a": nil, "/a": nil}
	selected := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	none := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}
	deny, allow := admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction
	f := func(kind string, ref *admissionregistrationv1.ParamRef, namespace, want string) {
		t.Helper()
		var paramKind *admissionregistrationv1.ParamKind
		if kind != "" {
			paramKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: kind}
		}
		params, err := collectParams(t.Context(), objects, paramKind, newParamRef(ref), namespace)
		var names []string
		for _, p := range params {
			if p == nil {
				names = append(names, "null")
			} else {
				names = append(names, p.Namespace+"/"+p.Name)
			}
		}
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s %v in %q\ngot  %s\nwant %s", kind, ref, namespace, got, want)
		}
	}
	type ref = admissionregistrationv1.ParamRef

	f("", nil, "shop", "null")
	f("", &ref{Name: "a"}, "shop", "null")
	f("ConfigMap", nil, "shop", "null")
	f("ConfigMap", &ref{Name: "a"}, "shop", "shop/a")
	f("ConfigMap", &ref{Name: "a", Namespace: "other"}, "shop", "other/a")
	f("ConfigMap", &ref{Name: "a", Namespace: "other"}, "", "other/a")
	f("ConfigMap", &ref{Selector: selected}, "shop", "shop/a shop/b")
	f("ConfigMap", &ref{Selector: &metav1.LabelSelector{}}, "shop", "shop/a shop/b shop/c")
	f("ConfigMap", &ref{Name: "x", ParameterNotFoundAction: &allow}, "shop", "")
	f("ConfigMap", &ref{Selector: none, ParameterNotFoundAction: &allow}, "shop", "")
	f("ConfigMap", &ref{Selector: none}, "shop", "")
	f("Shop", &ref{Name: "a"}, "shop", "/a")
	f("Shop", &ref{Name: "a"}, "", "/a")
	f("Shop", &ref{Selector: &metav1.LabelSelector{}}, "shop", "/a")

	f("ConfigMap", &ref{Name: "x", ParameterNotFoundAction: &deny}, "shop",
		"no params found for policy binding with `Deny` parameterNotFoundAction")
	f("ConfigMap", &ref{Selector: none, ParameterNotFoundAction: &deny}, "shop",
		"no params found for policy binding with `Deny` parameterNotFoundAction")
	f("ConfigMap", &ref{Name: "a"}, "", "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	f("ConfigMap", &ref{Name: "a", Selector: selected}, "shop", "paramRef.name and paramRef.selector are mutually exclusive")
	f("ConfigMap", &ref{}, "shop", "one of name or selector must be provided")
	f("ConfigMap", &ref{Name: "broken"}, "shop", "cannot read it")
	f("Shop", &ref{Name: "a", Namespace: "shop"}, "shop", "paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	f("Slow", &ref{Name: "a"}, "shop", "not yet synced")
	f("Lost", &ref{Name: "a"}, "shop", "nobody answers")
	f("Ship", &ref{Name: "a"}, "shop", "paramKind kind `&ParamKind{APIVersion:v1,Kind:Ship,}` not known")
	f("ConfigMap", &ref{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "x"}}}},
		"shop",
		`"x" is not a valid label selector operator`)
}
