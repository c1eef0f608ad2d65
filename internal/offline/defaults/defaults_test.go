package defaults

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
)

// applied returns an object in YAML with its defaults.
func applied(t *testing.T, d *Defaults, kind, text string) map[string]any {
	t.Helper()
	gvk := parse(kind)
	before, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	after, err := d.Apply(gvk, before)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(after, &object); err != nil {
		t.Fatalf("%s: %v", after, err)
	}
	return object
}

// tester returns a function that compares an object with its defaults, both in YAML.
func tester(t *testing.T, release string) func(kind, text, want string) {
	v, _, err := admission.ParseVersion(release)
	if err != nil {
		t.Fatal(err)
	}
	return func(kind, text, want string) {
		t.Helper()
		got := applied(t, New(v), kind, text)
		var wanted map[string]any
		if err := yaml.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, wanted) {
			shown, _ := yaml.Marshal(got)
			t.Errorf("%s %s: got\n%s\nwant\n%s", kind, text, shown, want)
		}
	}
}

// These are a few objects of each kind of rule. TestDefaults in e2e/review compares all with a kube-apiserver.

func TestPod(t *testing.T) {
	f := tester(t, "1.37")
	const spec = "dnsPolicy: ClusterFirst, restartPolicy: Always, schedulerName: default-scheduler, securityContext: {}, " +
		"terminationGracePeriodSeconds: 30, enableServiceLinks: true"
	const container = "terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File"
	f("v1 Pod", "{}", "{metadata: {}, status: {}, spec: {containers: null, "+spec+"}}")
	f("v1 Pod", "{spec: {hostNetwork: true, unknown: 1, volumes: [{name: v}], containers: [{image: a, resources: {limits: {cpu: 0.5}}, "+
		"ports: [{containerPort: 80}]}]}}",
		"{metadata: {}, status: {}, spec: {hostNetwork: true, volumes: [{name: v, emptyDir: {}}], containers: [{name: '', image: a, "+
			"resources: {limits: {cpu: 500m}, requests: {cpu: 500m}}, imagePullPolicy: Always, ports: [{containerPort: 80, "+
			"hostPort: 80, protocol: TCP}], "+container+"}], "+spec+"}}")
	// kube-apiserver refuses this one.
	f("v1 Pod", "{spec: {hostNetwork: yes please, containers: [{image: 'a:v1'}, 1]}}",
		"{spec: {hostNetwork: yes please, containers: [{image: 'a:v1', imagePullPolicy: IfNotPresent, "+container+"}, 1], "+spec+"}}")
	f("v1 Pod", "{spec: []}", "{spec: []}")
}

func TestPullPolicy(t *testing.T) {
	f := func(image, want string) {
		t.Helper()
		if got := pullPolicy("image")(object{"image": image}); got != want {
			t.Errorf("%s: got %s, want %s", image, got, want)
		}
	}
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	f("nginx", "Always")
	f("nginx:latest", "Always")
	f("registry:5000/nginx", "Always")
	f("nginx:latest"+digest, "Always")
	f("nginx:1", "IfNotPresent")
	f("nginx"+digest, "IfNotPresent")
	f("", "IfNotPresent")
	f("UPPER CASE", "IfNotPresent")
}

func TestReleases(t *testing.T) {
	const set, image = "{spec: {updateStrategy: {rollingUpdate: {partition: 1}}}}", "{spec: {volumes: [{name: v, image: {reference: a}}]}}"
	has := func(release, kind, text, part string, want bool) {
		t.Helper()
		v, _, err := admission.ParseVersion(release)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(applied(t, New(v), kind, text))
		if err != nil || strings.Contains(string(got), part) != want {
			t.Errorf("%s: got %s, %v, want %s in it: %t", release, got, err, part, want)
		}
	}
	has("1.36", "apps/v1 StatefulSet", set, `"maxUnavailable":1`, false)
	has("1.37", "apps/v1 StatefulSet", set, `"maxUnavailable":1`, true)
	has("1.34", "v1 Pod", image, `"pullPolicy":"Always"`, false)
	has("1.35", "v1 Pod", image, `"pullPolicy":"Always"`, true)
}

func TestOtherKinds(t *testing.T) {
	f := tester(t, "1.37")
	f("v1 Namespace", "{metadata: {name: a, labels: null}}",
		"{metadata: {name: a, labels: {kubernetes.io/metadata.name: a}}, spec: {}, status: {phase: Active}}")
	f("v1 Namespace", "{metadata: {generateName: a-}}", "{metadata: {generateName: a-}, spec: {}, status: {phase: Active}}")
	f("v1 Secret", "{stringData: {a: b}}", "{metadata: {}, type: Opaque, data: {a: Yg==}}")
	f("v1 ConfigMap", "{data: {a: b}, more: {}}", "{metadata: {}, data: {a: b}}")
	f("v1 Service", "{spec: {ports: [{port: 80}, {port: 81, targetPort: http}]}}",
		"{metadata: {}, status: {loadBalancer: {}}, spec: {type: ClusterIP, sessionAffinity: None, internalTrafficPolicy: Cluster, "+
			"ports: [{port: 80, protocol: TCP, targetPort: 80}, {port: 81, protocol: TCP, targetPort: http}]}}")
	f("networking.k8s.io/v1 NetworkPolicy", "{spec: {egress: [{}]}}",
		"{metadata: {}, spec: {podSelector: {}, egress: [{}], policyTypes: [Ingress, Egress]}}")
	f("rbac.authorization.k8s.io/v1 RoleBinding", "{roleRef: {kind: Role, name: a}, subjects: [{kind: User, name: a}, "+
		"{kind: ServiceAccount, name: a}]}",
		"{metadata: {}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: a}, subjects: [{apiGroup: "+
			"rbac.authorization.k8s.io, kind: User, name: a}, {kind: ServiceAccount, name: a}]}")
	f("storage.k8s.io/v1 StorageClass", "{provisioner: a}",
		"{metadata: {}, provisioner: a, reclaimPolicy: Delete, volumeBindingMode: Immediate}")
	f("example.com/v1 Pod", "{spec: {containers: [{image: a}]}}", "{spec: {containers: [{image: a}]}}")
}

// TestValuesAreNotShared changes the defaults of an object, and expects that the next one has its own.
func TestValuesAreNotShared(t *testing.T) {
	for range 2 {
		o := object{"spec": object{"strategy": object{}}}
		for i := range deployment {
			deployment[i].apply(o, deployment[i].at, admission.Newest().Minor())
		}
		strategy := o["spec"].(object)["strategy"].(object)
		update := strategy["rollingUpdate"].(object)
		if update["maxSurge"] != "25%" || len(update) != 2 {
			t.Errorf("got %v", strategy)
		}
		update["maxSurge"], update["other"] = "0", "1"
	}
}
