package defaults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
)

func TestAdded(t *testing.T) {
	d := New(admission.Version{})
	f := func(kind, text, changes, paths string, want ...string) {
		t.Helper()
		given, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		withDefaults, err := d.Apply(parse(kind), given)
		if err != nil {
			t.Fatal(err)
		}
		now := withDefaults
		if changes != "" {
			var object, more map[string]any
			if err := json.Unmarshal(withDefaults, &object); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(changes), &more); err != nil {
				t.Fatal(err)
			}
			for name, value := range more {
				object["spec"].(map[string]any)[name] = value
			}
			if now, err = json.Marshal(object); err != nil {
				t.Fatal(err)
			}
		}
		if got := NewChanges(parse(kind), given, withDefaults, now).Added(strings.Fields(paths)); !slices.Equal(got, want) {
			t.Errorf("%s %s: got %q, want %q", text, paths, got, want)
		}
	}
	const deployment, pod = "apps/v1 Deployment", "v1 Pod"
	f(deployment, "{spec: {}}", "", "spec.replicas spec.replicas spec.paused", "spec.replicas")
	f(deployment, "{spec: {replicas: null}}", "", "spec.replicas", "spec.replicas")
	f(deployment, "{spec: {replicas: 1}}", "", "spec.replicas")
	f(deployment, "{spec: {}}", "{replicas: 3}", "spec.replicas") // a plugin has set it
	f(deployment, "{spec: {strategy: {type: Recreate}}}", "", "spec.strategy.type spec.strategy.rollingUpdate.maxSurge")
	f(deployment, "{spec: {}}", "", "spec.strategy.rollingUpdate.maxSurge", "spec.strategy.rollingUpdate.maxSurge")
	const containers = "{spec: {containers: [{name: a, imagePullPolicy: Always}, {name: b}, {name: c}]}}"
	f(pod, containers, "", "spec.containers[*].imagePullPolicy", "spec.containers[1].imagePullPolicy", "spec.containers[2].imagePullPolicy")
	f(pod, containers, "", "spec.containers[0].imagePullPolicy spec.containers[2].imagePullPolicy spec.containers[3].imagePullPolicy",
		"spec.containers[2].imagePullPolicy")
	f(pod, "{spec: {containers: [{name: {x: z}}]}}", "", "spec.containers[*].imagePullPolicy", "spec.containers[0].imagePullPolicy")
	// Plugins made the list longer, or replaced an element.
	f(pod, containers, "{containers: [{name: x, imagePullPolicy: IfNotPresent}, {name: a}, {name: b}, {name: c}]}",
		"spec.containers[*].imagePullPolicy spec.containers[1].imagePullPolicy")
	f(pod, containers, "{containers: [{name: b, imagePullPolicy: IfNotPresent}, {name: a, imagePullPolicy: IfNotPresent}, {name: c}]}",
		"spec.containers[*].imagePullPolicy")
	f(pod, "{spec: {}}", "", "spec[ spec..x .spec spec[0 spec.nodeName")
	const label = `metadata.labels["kubernetes.io/metadata.name"]`
	for _, path := range []string{label, "metadata.labels[kubernetes.io/metadata.name]", "metadata.labels[*]"} {
		f("v1 Namespace", "{metadata: {name: a}}", "", path, label)
	}
	f("v1 Secret", "{stringData: {a: b}}", "", "data.a type", "type")
	var many []string
	for i := range addedMax + 5 {
		many = append(many, fmt.Sprintf("{name: a%d}", i))
	}
	text := "{spec: {containers: [" + strings.Join(many, ", ") + "]}}"
	given, _ := yaml.YAMLToJSON([]byte(text))
	withDefaults, _ := d.Apply(parse(pod), given)
	unchanged := NewChanges(parse(pod), given, withDefaults, withDefaults)
	if got := unchanged.Added([]string{"spec.containers[*].imagePullPolicy"}); len(got) != addedMax {
		t.Errorf("got %d fields, want %d", len(got), addedMax)
	}
	if got := NewChanges(parse(pod), []byte("{"), withDefaults, withDefaults).Added([]string{"spec.restartPolicy"}); got != nil {
		t.Errorf("got %q of a text that is not JSON", got)
	}
}
