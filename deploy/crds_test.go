package deploy_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/handlers/cluster"
)

const crdsFile = "chart/files/policies.crds.yaml"

// TestCRDs makes chart/files/policies.crds.yaml of the Go types of
// admissionregistration.k8s.io/v1.
func TestCRDs(t *testing.T) {
	want := "# The kinds of policies.fastadmit.io, made of the types of admissionregistration.k8s.io/v1: cd deploy && go test . -run TestCRDs -update\n"
	for _, k := range []struct {
		kind    *cluster.Kind
		spec    any
		columns []any
	}{
		{cluster.ValidatingAdmissionPolicies.Kind, admissionregistrationv1.ValidatingAdmissionPolicySpec{}, policyColumns()},
		{cluster.ValidatingAdmissionPolicyBindings.Kind, admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{}, bindingColumns("Actions", ".spec.validationActions")},
		{cluster.MutatingAdmissionPolicies.Kind, admissionregistrationv1.MutatingAdmissionPolicySpec{}, policyColumns()},
		{cluster.MutatingAdmissionPolicyBindings.Kind, admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{}, bindingColumns()},
	} {
		text, err := yaml.Marshal(crd(k.kind, reflect.TypeOf(k.spec), k.columns))
		if err != nil {
			t.Fatal(err)
		}
		want += "---\n" + string(text)
	}
	if *update {
		if err := os.WriteFile(crdsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := readFile(t, crdsFile); got != want {
		t.Errorf("%s is not current: go test . -run TestCRDs -update writes it anew", crdsFile)
	}
}

func column(name, path string) map[string]any {
	return map[string]any{"name": name, "type": "string", "jsonPath": path}
}

func age() map[string]any {
	return map[string]any{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
}

func policyColumns() []any {
	return []any{
		column("Compiled", `.status.conditions[?(@.type=="Compiled")].status`),
		column("ParamKind", ".spec.paramKind.kind"),
		column("FailurePolicy", ".spec.failurePolicy"), age(),
	}
}

func bindingColumns(more ...string) []any {
	columns := []any{column("PolicyName", ".spec.policyName"), column("ParamRef", ".spec.paramRef.name")}
	for pair := range slices.Chunk(more, 2) {
		columns = append(columns, column(pair[0], pair[1]))
	}
	return append(columns, age())
}

// crd returns the CustomResourceDefinition of a kind.
func crd(kind *cluster.Kind, spec reflect.Type, columns []any) map[string]any {
	gvk, plural := kind.GroupVersionKind(), kind.Resource().Resource
	schema := map[string]any{
		"type": "object", "required": []string{"spec"},
		"description": gvk.Kind + " as in admissionregistration.k8s.io/v1, evaluated by fastadmit.",
		"properties": map[string]any{
			"apiVersion": map[string]any{"type": "string"}, "kind": map[string]any{"type": "string"},
			"metadata": map[string]any{"type": "object"}, "spec": schemaOf(spec, ""),
		},
	}
	version := map[string]any{
		"name": gvk.Version, "served": true, "storage": true, "additionalPrinterColumns": columns,
		"schema": map[string]any{"openAPIV3Schema": schema},
	}
	if strings.HasSuffix(gvk.Kind, "Policy") {
		schema["properties"].(map[string]any)["status"] = statusSchema()
		version["subresources"] = map[string]any{"status": map[string]any{}}
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name":        plural + "." + gvk.Group,
			"annotations": map[string]string{"helm.sh/resource-policy": "keep"},
		},
		"spec": map[string]any{
			"group": gvk.Group, "scope": "Cluster", "versions": []any{version},
			"names": map[string]any{
				"plural": plural, "singular": strings.ToLower(gvk.Kind), "kind": gvk.Kind, "listKind": gvk.Kind + "List",
				"categories": []string{"fastadmit"},
			},
		},
	}
}

func statusSchema() map[string]any {
	condition := schemaOf(reflect.TypeFor[metav1.Condition](), "")
	return map[string]any{
		"type": "object", "description": "What became of the policy. fastadmit writes it.",
		"properties": map[string]any{
			"observedGeneration": map[string]any{"type": "integer", "format": "int64"},
			"conditions": map[string]any{
				"type": "array", "items": condition,
				"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []string{"type"},
			},
		},
	}
}

// What the API server says when a field is left out, and which values a type has.
var (
	schemaDefaults = map[string]any{
		"failurePolicy": "Fail", "matchPolicy": "Equivalent", "scope": "*",
		"namespaceSelector": map[string]any{}, "objectSelector": map[string]any{},
	}
	schemaEnums = map[string][]string{
		"FailurePolicyType": {"Fail", "Ignore"}, "MatchPolicyType": {"Equivalent", "Exact"}, "ScopeType": {"*", "Cluster", "Namespaced"},
		"OperationType": {"*", "CONNECT", "CREATE", "DELETE", "UPDATE"}, "ValidationAction": {"Audit", "Deny", "Warn"},
		"ParameterNotFoundActionType": {"Allow", "Deny"}, "PatchType": {"ApplyConfiguration", "JSONPatch"},
		"ReinvocationPolicyType": {"IfNeeded", "Never"},
	}
)

// schemaOf returns the structural schema of a Go type of the API.
func schemaOf(t reflect.Type, description string) map[string]any {
	s := make(map[string]any)
	if description != "" {
		s["description"] = description
	}
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		s["type"], s["format"] = "string", "date-time"
		return s
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem(), description)
	}
	switch t.Kind() {
	case reflect.String:
		s["type"] = "string"
		if values := schemaEnums[t.Name()]; values != nil {
			s["enum"] = values
		}
	case reflect.Bool:
		s["type"] = "boolean"
	case reflect.Int64:
		s["type"], s["format"] = "integer", "int64"
	case reflect.Slice:
		s["type"], s["items"] = "array", schemaOf(t.Elem(), "")
	case reflect.Map:
		s["type"], s["additionalProperties"] = "object", schemaOf(t.Elem(), "")
	case reflect.Struct:
		s["type"] = "object"
		properties, required := make(map[string]any), []string{}
		addFields(t, properties, &required)
		s["properties"] = properties
		if len(required) > 0 {
			slices.Sort(required)
			s["required"] = required
		}
	default:
		panic("no schema for " + t.String())
	}
	return s
}

func addFields(t reflect.Type, properties map[string]any, required *[]string) {
	docs := map[string]string{}
	if documented, ok := reflect.New(t).Elem().Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		docs = documented.SwaggerDoc()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous {
			addFields(f.Type, properties, required)
			continue
		}
		property := schemaOf(f.Type, docs[name])
		if value, ok := schemaDefaults[name]; ok {
			property["default"] = value
		}
		if !strings.Contains(options, "omitempty") {
			*required = append(*required, name)
		}
		properties[name] = property
	}
}
