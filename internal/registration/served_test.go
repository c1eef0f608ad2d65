package registration

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// serves are the resources of group versions.
type serves map[schema.GroupVersion]string

func (s serves) Versions(_ context.Context, group string) (versions []string, err error) {
	for _, version := range []string{"v1", "v1beta1", "v2"} {
		if _, ok := s[schema.GroupVersion{Group: group, Version: version}]; ok {
			versions = append(versions, version)
		}
	}
	if group == "broken" {
		err = errors.New("broken")
	}
	return versions, err
}

func (s serves) Resources(_ context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error) {
	if s[version] == "" {
		return nil, nil
	}
	list := new(metav1.APIResourceList)
	for name := range strings.SplitSeq(s[version], " ") {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

// TestFindUnserved checks which plugins get none of their requests from an API server, or only a part.
func TestFindUnserved(t *testing.T) {
	d := serves{
		{Version: "v1"}: "pods pods/exec",
		{Group: "certificates.k8s.io", Version: "v2"}:         "bundles",
		{Group: "certificates.k8s.io", Version: "v1beta1"}:    "requests",
		{Group: "certificates.k8s.io", Version: "v1"}:         "requests signed",
		{Group: "scheduling.k8s.io", Version: "v1"}:           "",
		{Group: "resource.k8s.io", Version: "v1beta1"}:        "slices",
		{Group: "networking.example.com", Version: "v1beta1"}: "x",
	}
	rule := func(group, version, resource string) admission.Rule {
		return admission.NewRule(group, version, resource, codec.Create)
	}
	f := func(want []Unserved, rules ...admission.Rule) {
		t.Helper()
		got, err := FindUnserved(t.Context(), d, []*admission.Plugin{{Name: "P", Rules: rules}})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: got %v, %v, want %v", rules, got, err, want)
		}
	}
	f(nil, admission.Any())
	f(nil, rule("", "v1", "pods"))
	f(nil, rule("", "v1", "pods/exec"))
	f(nil, rule("", "v1", "*/scale"))
	f(nil, rule("certificates.k8s.io", "v1", "requests"))
	f(nil, rule("certificates.k8s.io", "*", "bundles"))
	f(nil, rule("", "v1", "pods"), rule("scheduling.k8s.io", "v1", "podgroups")) // one rule is served
	const missed = "requests for bundles.certificates.k8s.io pass without it, because the API server serves version v2 and " +
		"its rules name v1"
	f([]Unserved{{"P", missed, true}}, rule("certificates.k8s.io", "v1", "bundles"))
	f([]Unserved{{"P", missed, true}}, rule("", "v1", "pods"), rule("certificates.k8s.io", "v1", "bundles"))
	f([]Unserved{{"P", "it has nothing to do, because the API server does not serve podgroups.scheduling.k8s.io, x.example.com", false}},
		rule("scheduling.k8s.io", "v1", "podgroups"), rule("example.com", "v1", "x"))
	if _, err := FindUnserved(t.Context(), d,
		[]*admission.Plugin{{Name: "P", Rules: []admission.Rule{rule("broken", "v1", "x")}}}); err == nil ||
		err.Error() != "cannot find out which resources of plugin P are served: broken" {
		t.Errorf("got %v, want the error of discovery", err)
	}
}
