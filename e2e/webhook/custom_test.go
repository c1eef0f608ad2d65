package webhook

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// definition defines a custom resource with the versions v1 and v2, stored as
// one of them. Its data has two keys; v1 keeps others too, v2 prunes them.
func definition(plural, stored string) string {
	version := func(name, unknown string) string {
		return fmt.Sprintf(`{name: %s, served: true, storage: %t, schema: {openAPIV3Schema: {type: object, properties: {
data: {type: object, %s properties: {webhook-e2e-test: {type: string}, mutation-start: {type: string}, mutation-stage-1: {type: `+
			`string}}}}}}}`,
			name, name == stored, unknown)
	}
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[1]s.e2e.example.com},
spec: {group: e2e.example.com, scope: Namespaced, names: {plural: %[1]s, singular: %[1]s, kind: %[2]s, listKind: %[2]sList}, `+
		`versions: [%[3]s, %[4]s]}}`,
		plural, kindOf(plural), version("v1", "x-kubernetes-preserve-unknown-fields: true,"), version("v2", ""))
}

func kindOf(plural string) string { return strings.ToUpper(plural[:1]) + plural[1:] }

// define creates the CRD with v1 as the storage version, and waits until it can be used.
func (s *stand) define(t *testing.T, plural string) (crd *unstructured.Unstructured) {
	t.Helper()
	crd = s.mustCreate(t, definition(plural, "v1"))
	resource, err := s.Resource(crd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { allowed(t, resource.Delete(context.Background(), crd.GetName(), metav1.DeleteOptions{})) })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		probe := strings.Replace(custom("default", plural, "v1", ""), "name: c,", "name: probe,", 1)
		if _, err = s.create(t, probe); err == nil {
			return crd
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func custom(namespace, plural, version, data string) string {
	return fmt.Sprintf(`{apiVersion: e2e.example.com/%s, kind: %s, metadata: {name: c, namespace: %s}, data: {%s}}`,
		version, kindOf(plural), namespace, data)
}

func (s *stand) denyCustomResource(t *testing.T, namespace string) {
	s.define(t, "denials")
	hook := s.hook("/validate/DenyUnwanted")
	hook.Rules = cluster.Rules("*", "e2e.example.com", "*", "denials")
	unwanted := custom(namespace, "denials", "v1", "webhook-e2e-test: webhook-disallow")
	object := s.mustCreate(t, unwanted) // before the webhook is registered
	resource, err := s.Resource(object)
	if err != nil {
		t.Fatal(err)
	}
	s.validating(t, hook)
	_, err = s.create(t, strings.Replace(unwanted, "name: c,", "name: d,", 1))
	denied(t, err, "the data contains unwanted key and value")
	ctx := context.Background()
	_, err = resource.Patch(ctx, "c", types.MergePatchType, []byte(`{"data":{"mutation-start":"yes"}}`), metav1.PatchOptions{})
	denied(t, err, "the data contains unwanted key and value")
	denied(t, resource.Delete(ctx, "c", metav1.DeleteOptions{}), "the data contains unwanted key and value")
	_, err = resource.Patch(ctx, "c", types.MergePatchType, []byte(`{"data":{"webhook-e2e-test":"fine"}}`), metav1.PatchOptions{})
	allowed(t, err)
	allowed(t, resource.Delete(ctx, "c", metav1.DeleteOptions{}))
}

// stages checks which stages an object has.
func stages(t *testing.T, object *unstructured.Unstructured, want ...string) {
	t.Helper()
	data, _, _ := unstructured.NestedStringMap(object.Object, "data")
	if len(data) != len(want) {
		t.Errorf("got data %v, want %v", data, want)
	}
	for _, key := range want {
		if data[key] != "yes" {
			t.Errorf("got data %v, want %v", data, want)
		}
	}
}

// mutateCustomResource also checks pruning: version v2 does not have the field that the second
// webhook adds.
func (s *stand) mutateCustomResource(t *testing.T, namespace string) {
	s.define(t, "mutations")
	one, two := s.hook("/mutate/StageOne"), s.hook("/mutate/StageTwo")
	one.Rules = cluster.Rules("CREATE", "e2e.example.com", "*", "mutations")
	two.Rules = one.Rules
	s.mutating(t, one, two)
	stages(t, s.mustCreate(t, custom(namespace, "mutations", "v1", `mutation-start: "yes"`)),
		"mutation-start", "mutation-stage-1", "mutation-stage-2")
	pruned := strings.Replace(custom(namespace, "mutations", "v2", `mutation-start: "yes"`), "name: c,", "name: pruned,", 1)
	stages(t, s.mustCreate(t, pruned), "mutation-start", "mutation-stage-1")
}

// otherStorage changes the storage version between two writes. The webhook is registered for v1 and
// gets objects written as v2 converted.
func (s *stand) otherStorage(t *testing.T, namespace string) {
	crd := s.define(t, "storages")
	one := s.hook("/mutate/StageOne")
	one.Rules = cluster.Rules("*", "e2e.example.com", "v1", "storages")
	one.Equivalent = true
	s.mutating(t, one)
	ctx := context.Background()
	object := s.mustCreate(t, custom(namespace, "storages", "v1", ``))
	definitions, err := s.Resource(crd)
	if err != nil {
		t.Fatal(err)
	}
	_, err = definitions.Patch(ctx, crd.GetName(), types.JSONPatchType, []byte(`[
		{"op":"replace","path":"/spec/versions/0/storage","value":false},
		{"op":"replace","path":"/spec/versions/1/storage","value":true}]`), metav1.PatchOptions{})
	allowed(t, err)
	object.SetAPIVersion("e2e.example.com/v2")
	resource, err := s.Resource(object)
	if err != nil {
		t.Fatal(err)
	}
	object, err = resource.Patch(ctx, "c", types.MergePatchType, []byte(`{"data":{"mutation-start":"yes"}}`), metav1.PatchOptions{})
	allowed(t, err)
	stages(t, object, "mutation-start", "mutation-stage-1")
	if object.GetAPIVersion() != "e2e.example.com/v2" {
		t.Errorf("got API version %s, want what was written", object.GetAPIVersion())
	}
}
