package defaults

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestUnknown(t *testing.T) {
	f := func(kind, text string, want ...string) {
		t.Helper()
		object, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range Unknown(parse(kind), object) {
			got = append(got, u.Path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s %s: got %q, want %q", kind, text, got, want)
		}
	}
	f("v1 Pod", "{kind: Pod, apiVersion: v1, metadata: {name: a, labels: {x: z}, annotations: {spec.x: z}}, spec: {containers: [{}]}}")
	f("v1 Pod", "{kin: Pod, metadata: {nam: a}, spec: {containers: [{}, {imagePullPolcy: Always, env: [{valu: 1}]}]}}",
		"kin", "metadata.nam", "spec.containers[1].env[0].valu", "spec.containers[1].imagePullPolcy")
	f("apps/v1 Deployment", "{spec: {template: {spec: {Containers: []}}, strategy: {rollingUpdate: {x: 1}}}}",
		"spec.strategy.rollingUpdate.x", "spec.template.spec.Containers")
	f("v1 ConfigMap", "{data: {x: z}, dat: {}}", "dat")
	f("v1 Pod", "{spec: {x: 1, containers: 5}}") // kube-apiserver refuses it; see TestCheck
	f("apiextensions.k8s.io/v1 CustomResourceDefinition", "{x: 1}")
	f("example.com/v1 Gadget", "{x: 1}")
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "x%d: 1, ", i)
	}
	object, _ := yaml.YAMLToJSON([]byte("{" + many.String() + "kind: Pod}"))
	if got := len(Unknown(parse("v1 Pod"), object)); got != 100 {
		t.Errorf("got %d of 1000 unknown fields, want 100", got)
	}
}

// TestHint finds the fields that somebody may have meant.
func TestHint(t *testing.T) {
	f := func(kind, text, want string) {
		t.Helper()
		object, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		all := Unknown(parse(kind), object)
		if len(all) != 1 {
			t.Fatalf("%s: got %v, want one field", text, all)
		}
		if got := all[0].Hint(); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	f("v1 Pod", "{metdata: {}}", ", did you mean metadata?")
	f("v1 Pod", "{kin: Pod}", ", did you mean kind?") // an embedded struct
	f("v1 Pod", "{spec: {containers: [{securityContext: {runAsNonroot: true}}]}}", ", did you mean runAsNonRoot?")
	f("v1 Pod", "{spec: {volumes: [{name: a, configmap: {}}]}}", ", did you mean configMap?") // an embedded struct in a list
	f("v1 Pod", "{spec: {volumes: [{name: a, configMap: {nam: b}}]}}", ", did you mean name?")
	f("v1 Pod", "{spec: {image: a}}", ", did you mean spec.containers[].image?")
	f("v1 Pod", "{spec: {name: a}}", ", did you mean metadata.name?")
	f("v1 Pod", "{labels: {a: b}}", ", did you mean metadata.labels?")
	f("v1 Pod", "{spec: {containers: [{name: a, volumes: []}]}}", ", did you mean spec.volumes?")
	f("v1 Pod", "{spec: {containers: [{name: a, containerPort: 1}]}}", ", did you mean spec.containers[0].ports[].containerPort?")
	f("v1 Pod", "{spec: {hostname: a, hostNetwrk: true}}", ", did you mean hostNetwork?")
	f("v1 Pod", "{spec: {nothing: a}}", "")
	f("apps/v1 Deployment", "{spec: {containers: []}}", ", did you mean spec.template.spec.containers?")
	f("apps/v1 Deployment", "{spec: {spec: {hostNetwork: true}}}", ", did you mean spec.template.spec?")
	f("apps/v1 Deployment", "{spec: {image: a}}", ", did you mean spec.template.spec.containers[].image?")
	f("apps/v1 Deployment", "{spec: {template: {spec: {replicas: 1}}}}", ", did you mean spec.replicas?")
	f("apps/v1 Deployment", "{spec: {template: {labels: {}}}}", ", did you mean spec.template.metadata.labels?")
}

func TestCheck(t *testing.T) {
	f := func(kind, text, wantPath, want string) {
		t.Helper()
		object, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		_, path, err := Check(parse(kind), object)
		if path != wantPath || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s %s: got %q and %v, want %q and %q", kind, text, path, err, wantPath, want)
		}
	}
	f("v1 Pod", "{spec: {x: 1, containers: [{name: a}]}}", "", "")
	f("v1 Pod", "{spec: {containers: 5}}", "spec.containers", "spec.containers: got a number, want a list")
	f("v1 Pod", "{spec: {hostPID: 'true'}}", "spec.hostPID", "spec.hostPID: got a string, want true or false")
	f("apps/v1 Deployment", "{spec: {replicas: 1.5}}", "spec.replicas", "spec.replicas: got 1.5, want a whole number of 32 bits")
	f("v1 Pod", "{spec: {overhead: {cpu: x}}}", "spec.overhead.cpu", `spec.overhead.cpu: got "x", want a quantity such as 500m, 2 or 1Gi`)
	f("v1 Pod", "{spec: {containers: [{name: a}, {name: b, resources: {limits: {cpu: 1, memory: 1GB}}}]}}",
		"spec.containers[1].resources.limits.memory", `got "1GB", want a quantity`)
	f("apps/v1 Deployment", "{metadata: {creationTimestamp: now}}", "metadata.creationTimestamp", `got "now", want a time such as 2006-01`)
	f("v1 Pod", "{spec: {containers: [{ports: [{containerPort: 1}]}, {ports: [{containerPort: 2}, {containerPort: '80'}]}]}}",
		"spec.containers[1].ports[1].containerPort", "got a string, want a whole number")
	f("v1 Pod", "{spec: {volumes: [{name: a}, {name: b, fc: {lun: '2'}}]}}", "spec.volumes[1].fc.lun",
		"spec.volumes[1].fc.lun: got a string, want a whole number of 32 bits") // of the embedded VolumeSource
	f("v1 Secret", "{data: {a: eA==, password: hunter2}}", "data.password", "data.password: got another text, want base64")
	f("v1 Pod", "{spec: {containers: [{name: a}, 5]}}", "spec.containers[1]", "got a number, want an object")
	f("v1 ConfigMap", "{data: {a: b, c: 5}}", "data", "data: got a number, want a string")
	f("example.com/v1 X", "{spec: 5}", "", "")
	long := strings.Repeat("a", pathMax) // the error is the decoder's then, without a path
	f("v1 Pod", "{spec: {overhead: {? "+long+" : x}}}", "", "quantities must match the regular expression")
}
