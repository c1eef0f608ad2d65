package deploy_test

import (
	"cmp"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/policy"
)

// A customResource describes a CustomResourceDefinition.
type customResource struct {
	kind    *cluster.Kind
	object  reflect.Type // its Go type; nil for fastadmit's own kinds, which have only a status
	does    string       // what fastadmit does with it
	status  bool
	columns []any
}

// TestCRDs generates the files of CustomResourceDefinitions from the Go types of
// admissionregistration.k8s.io/v1.
func TestCRDs(t *testing.T) {
	t.Parallel()
	bindings := bindingColumns("Actions", ".spec.validationActions")
	testCRDs(t, cluster.PolicyGroup, "chart/files/policies.crds.yaml",
		customResource{cluster.ValidatingAdmissionPolicies.Kind, reflect.TypeFor[admissionregistrationv1.ValidatingAdmissionPolicy](),
			"evaluated", true, policyColumns()},
		customResource{cluster.ValidatingAdmissionPolicyBindings.Kind,
			reflect.TypeFor[admissionregistrationv1.ValidatingAdmissionPolicyBinding](), "evaluated", false, bindings},
		customResource{cluster.MutatingAdmissionPolicies.Kind, reflect.TypeFor[admissionregistrationv1.MutatingAdmissionPolicy](),
			"evaluated", true, policyColumns()},
		customResource{cluster.MutatingAdmissionPolicyBindings.Kind,
			reflect.TypeFor[admissionregistrationv1.MutatingAdmissionPolicyBinding](), "evaluated", false, bindingColumns()},
		customResource{cluster.PolicyExceptions.Kind, reflect.TypeFor[policy.ExceptionDocument](), "", true, []any{
			column("Policies", ".spec.policies"), column("Plugins", ".spec.plugins"), column("Expires", ".spec.expiresAt"),
			column("Compiled", `.status.conditions[?(@.type=="Compiled")].status`), column("Reason", ".spec.reason"), age(),
		}},
		customResource{cluster.PolicyReplicas.Kind, nil, "", true, []any{
			column("Plugin", ".status.plugin"), column("Host", ".status.host"), map[string]any{"name": "Renewed", "type": "date",
				"jsonPath": ".status.renewTime"}, age(),
		}})
	columns := []any{column("Ready", `.status.conditions[?(@.type=="Ready")].status`), age()}
	testCRDs(t, cluster.WebhookGroup, "chart/files/webhooks.crds.yaml",
		customResource{cluster.ValidatingWebhookConfigurations.Kind,
			reflect.TypeFor[admissionregistrationv1.ValidatingWebhookConfiguration](), "called", true, columns},
		customResource{cluster.MutatingWebhookConfigurations.Kind,
			reflect.TypeFor[admissionregistrationv1.MutatingWebhookConfiguration](), "called", true, columns})
}

func testCRDs(t *testing.T, group, file string, resources ...customResource) {
	t.Helper()
	want := "# The kinds of " + group + ", made of the types of admissionregistration.k8s.io/v1: cd deploy && go test . -run " +
		"TestCRDs -update\n"
	for i := range resources {
		text, err := yaml.Marshal(crd(&resources[i]))
		if err != nil {
			t.Fatal(err)
		}
		want += "---\n" + string(text)
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := readFile(t, file); got != want {
		t.Errorf("%s is not current: go test . -run TestCRDs -update writes it anew", file)
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
		column("Enforced", `.status.conditions[?(@.type=="Enforced")].status`),
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
func crd(d *customResource) map[string]any {
	gvk, plural := d.kind.GroupVersionKind(), d.kind.Resource().Resource
	properties := map[string]any{
		"apiVersion": map[string]any{"type": "string"}, "kind": map[string]any{"type": "string"},
		"metadata": map[string]any{"type": "object"},
	}
	schema := map[string]any{
		"type": "object", "properties": properties,
		"description": gvk.Kind + " as in admissionregistration.k8s.io/v1, " + d.does + " by fastadmit.",
	}
	if d.kind == cluster.PolicyExceptions.Kind {
		schema["description"] = "Lifts what policies and plugins say against the requests that it selects, with a reason and until a time."
	}
	if d.object == nil {
		schema["description"] = "What a replica of fastadmit says of itself: which policies of a plugin it enforces. fastadmit writes it."
	} else if spec, ok := d.object.FieldByName("Spec"); ok {
		schema["required"], properties["spec"] = []string{"spec"}, schemaOf(spec.Type, "")
	} else {
		webhooks, _ := d.object.FieldByName("Webhooks")
		properties["webhooks"] = listMap(schemaOf(webhooks.Type, ""), "name")
	}
	version := map[string]any{
		"name": gvk.Version, "served": true, "storage": true, "additionalPrinterColumns": d.columns,
		"schema": map[string]any{"openAPIV3Schema": schema},
	}
	if d.status {
		properties["status"] = statusSchema(gvk.Kind)
		version["subresources"] = map[string]any{"status": map[string]any{}}
	}
	metadata := map[string]any{"name": plural + "." + gvk.Group}
	if d.object != nil { // users' objects stay after helm uninstall
		metadata["annotations"] = map[string]string{"helm.sh/resource-policy": "keep"}
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata,
		"spec": map[string]any{
			"group": gvk.Group, "scope": "Cluster", "versions": []any{version},
			"names": map[string]any{
				"plural": plural, "singular": strings.ToLower(gvk.Kind), "kind": gvk.Kind, "listKind": gvk.Kind + "List",
				"categories": []string{"fastadmit"},
			},
		},
	}
}

func statusSchema(kind string) map[string]any {
	if kind == cluster.PolicyReplicas.GroupVersionKind().Kind {
		return replicaSchema()
	}
	what := "configuration"
	switch {
	case strings.HasSuffix(kind, "Policy"):
		what = "policy"
	case kind == policy.ExceptionKind:
		what = "exception"
	}
	properties := map[string]any{
		"observedGeneration": map[string]any{"type": "integer", "format": "int64"},
		"conditions":         listMap(schemaOf(reflect.TypeFor[[]metav1.Condition](), ""), "type"),
	}
	if kind == "ValidatingAdmissionPolicy" {
		properties["typeChecking"] = schemaOf(reflect.TypeFor[admissionregistrationv1.TypeChecking](),
			"What the schemas of the kinds say of the expressions.")
	}
	return map[string]any{
		"type": "object", "description": "What became of the " + what + ". fastadmit writes it.", "properties": properties,
	}
}

// replicaSchema is that of the status of a PolicyReplica.
func replicaSchema() map[string]any {
	text := func(description string) map[string]any {
		return map[string]any{"type": "string", "description": description}
	}
	policy := map[string]any{"type": "object", "required": []string{"name", "revision"}, "properties": map[string]any{
		"name": text("The name of a policy."),
		"observedGeneration": map[string]any{"type": "integer", "format": "int64", "description": "The generation of the policy that " +
			"the replica evaluates."},
		"revision": text("A hash of the policy and its bindings, with their generations."),
	}}
	return map[string]any{"type": "object", "properties": map[string]any{
		"plugin": text("The plugin that evaluates the policies."),
		"host":   text("The host name of the replica: in a cluster, the name of its pod."),
		"renewTime": map[string]any{"type": "string", "format": "date-time", "description": "When the replica last wrote this object. " +
			"It writes at least once a minute; after three minutes without a write, the replica counts as gone."},
		"policies": listMap(map[string]any{"type": "array", "items": policy, "description": "The policies that the replica evaluates: " +
			"those that have bindings, compile, and whose parameters it can read."}, "name"),
	}}
}

// listMap returns the schema of a list with a key.
func listMap(list map[string]any, key string) map[string]any {
	list["x-kubernetes-list-type"], list["x-kubernetes-list-map-keys"] = "map", []string{key}
	return list
}

// The API's default values, and the values of its enumerations.
var (
	schemaDefaults = map[string]any{
		"failurePolicy": "Fail", "matchPolicy": "Equivalent", "scope": "*",
		"namespaceSelector": map[string]any{}, "objectSelector": map[string]any{},
	}
	schemaEnums = map[string][]string{
		"FailurePolicyType": {"Fail", "Ignore"}, "MatchPolicyType": {"Equivalent", "Exact"}, "ScopeType": {"*", "Cluster", "Namespaced"},
		"OperationType": {"*", "CONNECT", "CREATE", "DELETE", "UPDATE"}, "ValidationAction": {"Audit", "Deny", "Warn"},
		"ParameterNotFoundActionType": {"Allow", "Deny"}, "PatchType": {"ApplyConfiguration", "JSONPatch"},
		"ReinvocationPolicyType": {"IfNeeded", "Never"}, "SideEffectClass": {"None", "NoneOnDryRun"},
		"LabelSelectorOperator": {"DoesNotExist", "Exists", "In", "NotIn"},
	}
	// Further validation of fields (k8s.io/kubernetes pkg/apis/admissionregistration/validation)
	// and of types. It accepts whatever kube-apiserver accepts. fastadmit checks all of it when it
	// is called.
	schemaMore = map[string]map[string]any{
		"MutatingWebhook.name": webhookName, "ValidatingWebhook.name": webhookName,
		"MutatingWebhook.timeoutSeconds": webhookTimeout, "ValidatingWebhook.timeoutSeconds": webhookTimeout,
		"MutatingWebhook.matchConditions": webhookConditions, "ValidatingWebhook.matchConditions": webhookConditions,
		"MutatingWebhook.admissionReviewVersions": notEmpty, "ValidatingWebhook.admissionReviewVersions": notEmpty,
		"MutatingWebhook.reinvocationPolicy": {"default": "Never"},
		"WebhookClientConfig": {"x-kubernetes-validations": []any{map[string]any{
			"rule": "has(self.url) != has(self.service)", "message": "exactly one of url or service is required",
		}}},
		"WebhookClientConfig.url": {"pattern": "^[hH][tT][tT][pP][sS]://"},
		"ServiceReference.name":   {"minLength": 1}, "ServiceReference.namespace": {"minLength": 1},
		"ServiceReference.port": {"default": 443, "minimum": 1, "maximum": 65535},
		"Rule.apiGroups":        notEmpty, "Rule.apiVersions": notEmpty, "Rule.resources": notEmpty,
		"RuleWithOperations.operations": notEmpty,
		"ExceptionSpec":                 {"x-kubernetes-validations": exceptionRules},
		"ExceptionSpec.policies":        exceptedNames, "ExceptionSpec.plugins": exceptedNames,
		"ExceptionSpec.matchConditions": listMap(map[string]any{"maxItems": 64}, "name"),
		"ExceptionSpec.reason":          {"minLength": 1, "maxLength": 1024},
		"ExceptionSpec.expiresAt":       {"format": "date-time"},
	}
	exceptedNames  = map[string]any{"maxItems": 128, "x-kubernetes-list-type": "set"}
	exceptionRules = []any{
		map[string]any{"rule": "has(self.policies) && self.policies.size() > 0 || has(self.plugins) && self.plugins.size() > 0",
			"message": "policies or plugins must contain at least one item"},
		map[string]any{"rule": "has(self.expiresAt) != (has(self.neverExpires) && self.neverExpires)",
			"message": "exactly one of expiresAt and neverExpires: true is required"},
	}
	// schemaDocs are descriptions of fields of fastadmit's own.
	schemaDocs = map[string]string{
		"ExceptionSpec.policies": "policies are names of ValidatingAdmissionPolicies, also of those that are translated from other " +
			"engines. There are no wildcards.",
		"ExceptionSpec.plugins": "plugins are names of admission plugins, such as PodSecurity.",
		"ExceptionSpec.matchConstraints": "matchConstraints select requests, as those of a ValidatingAdmissionPolicy. " +
			"objectSelector must match the object as it will be stored, with DELETE as it was. namespaceSelector matches no " +
			"cluster-scoped objects other than Namespaces. Required.",
		"ExceptionSpec.matchConditions": "matchConditions are CEL expressions, as those of a ValidatingAdmissionPolicy without params. " +
			"All must be true.",
		"ExceptionSpec.reason":       "reason says why there is the exception. Required.",
		"ExceptionSpec.expiresAt":    "expiresAt is when the exception ends. Required, unless neverExpires is true.",
		"ExceptionSpec.neverExpires": "neverExpires is true for an exception without an end.",
	}
	webhookName = map[string]any{
		"maxLength": 253, "pattern": `^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?){2,}$`,
	}
	webhookTimeout    = map[string]any{"default": 10, "minimum": 1, "maximum": 30}
	webhookConditions = listMap(map[string]any{"maxItems": 64}, "name")
	notEmpty          = map[string]any{"minItems": 1}
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
	case t == reflect.TypeFor[[]byte]():
		s["type"], s["format"] = "string", "byte"
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
	case reflect.Int32, reflect.Int64:
		s["type"], s["format"] = "integer", t.Kind().String()
	case reflect.Slice:
		s["type"], s["items"] = "array", schemaOf(t.Elem(), "")
	case reflect.Map:
		s["type"], s["additionalProperties"] = "object", schemaOf(t.Elem(), "")
	case reflect.Struct:
		s["type"] = "object"
		properties, required := make(map[string]any), []string{}
		addFields(t, properties, &required)
		s["properties"] = properties
		maps.Copy(s, schemaMore[t.Name()])
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
		property := schemaOf(f.Type, cmp.Or(docs[name], schemaDocs[t.Name()+"."+name]))
		if value, ok := schemaDefaults[name]; ok {
			property["default"] = value
		}
		maps.Copy(property, schemaMore[t.Name()+"."+name])
		if !strings.Contains(options, "omitempty") || t == reflect.TypeFor[admissionregistrationv1.Rule]() && name != "scope" ||
			t == reflect.TypeFor[admissionregistrationv1.RuleWithOperations]() {
			*required = append(*required, name)
		}
		properties[name] = property
	}
}
