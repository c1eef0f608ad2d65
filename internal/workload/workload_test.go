package workload

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/codec"
)

// made returns the objects that are created for an object in YAML, those that are created
// for them, and their creators.
func made(t *testing.T, paths Paths, text string) (all []string) {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var head struct{ APIVersion, Kind string }
	if err := json.Unmarshal(asJSON, &head); err != nil {
		t.Fatal(err)
	}
	gvk := schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
	children, err := paths.Children(gvk, strings.ToLower(head.Kind)+"s", asJSON)
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range children {
		asYAML, err := yaml.JSONToYAML(child.JSON)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, "# "+child.Controller+"\n"+string(asYAML))
		all = append(all, made(t, paths, string(asYAML))...)
	}
	return all
}

const owned = `  namespace: shop
  ownerReferences:
  - apiVersion: APIVERSION
    blockOwnerDeletion: true
    controller: true
    kind: KIND
    name: NAME
    uid: 00000000-0000-0000-0000-000000000000
`

func ownedBy(apiVersion, kind, name string) string {
	return strings.NewReplacer("APIVERSION", apiVersion, "KIND", kind, "NAME", name).Replace(owned)
}

// childrenOf tests the objects that are created for an object.
func childrenOf(t *testing.T) func(name, object string, want ...string) {
	return func(name, object string, want ...string) {
		t.Helper()
		got := made(t, Paths{"rollouts.argoproj.io": ".spec.pods.template"}, object)
		if g, w := strings.Join(got, "---\n"), strings.Join(want, "---\n"); g != w {
			t.Errorf("%s: got\n%s\nwant\n%s", name, g, w)
		}
	}
}

func TestChildren(t *testing.T) {
	f := childrenOf(t)
	f("Service", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
	f("Deployment of another group", "apiVersion: example.com/v1\nkind: Deployment\nmetadata: {name: a}\n")
	const template = `    metadata:
      name: only-in-the-template
      creationTimestamp: null
      labels: {app: web}
      annotations: {a: b}
      finalizers: [example.com/f]
    spec:
      containers: [{name: a, image: nginx, futureField: 1}]
`
	f("Deployment", `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {team: a, kubectl.kubernetes.io/last-applied-configuration: x}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
`+template, `# deployment-controller
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  annotations:
    deployment.kubernetes.io/revision: "1"
    team: a
  labels:
    app: web
    pod-template-hash: 7c5d98df86
  name: web-7c5d98df86
`+ownedBy("apps/v1", "Deployment", "web")+`spec:
  replicas: 3
  selector:
    matchLabels:
      app: web
      pod-template-hash: 7c5d98df86
  template:
    metadata:
      annotations:
        a: b
      finalizers:
      - example.com/f
      labels:
        app: web
        pod-template-hash: 7c5d98df86
      name: only-in-the-template
    spec:
      containers:
      - futureField: 1
        image: nginx
        name: a
`, `# replicaset-controller
apiVersion: v1
kind: Pod
metadata:
  annotations:
    a: b
  finalizers:
  - example.com/f
  generateName: web-7c5d98df86-
  labels:
    app: web
    pod-template-hash: 7c5d98df86
`+ownedBy("apps/v1", "ReplicaSet", "web-7c5d98df86")+`spec:
  containers:
  - futureField: 1
    image: nginx
    name: a
`)
}

func TestOtherChildren(t *testing.T) {
	f := childrenOf(t)
	f("ReplicationController",
		"apiVersion: v1\nkind: ReplicationController\nmetadata: {name: web, namespace: shop}\nspec:\n  template: {}\n",
		"# replication-controller\napiVersion: v1\nkind: Pod\nmetadata:\n  generateName: web-\n"+ownedBy("v1", "ReplicationController",
			"web")+"spec: {}\n")
	f("CronJob", `apiVersion: batch/v1
kind: CronJob
metadata: {name: tick, namespace: shop}
spec:
  schedule: "* * * * *"
  jobTemplate:
    metadata: {labels: {l: m}, annotations: {a: b}}
    spec:
      template: {spec: {restartPolicy: Never}}
`, `# cronjob-controller
apiVersion: batch/v1
kind: Job
metadata:
  annotations:
    a: b
    batch.kubernetes.io/cronjob-scheduled-timestamp: "2025-02-19T21:20:00Z"
  labels:
    l: m
  name: tick-29000000
`+ownedBy("batch/v1", "CronJob", "tick")+`spec:
  template:
    spec:
      restartPolicy: Never
`, `# job-controller
apiVersion: v1
kind: Pod
metadata:
  finalizers:
  - batch.kubernetes.io/job-tracking
  generateName: tick-29000000-
  labels:
    batch.kubernetes.io/controller-uid: 00000000-0000-0000-0000-000000000000
    batch.kubernetes.io/job-name: tick-29000000
    controller-uid: 00000000-0000-0000-0000-000000000000
    job-name: tick-29000000
`+ownedBy("batch/v1", "Job", "tick-29000000")+"spec:\n  restartPolicy: Never\n")
	f("custom", "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {generateName: r-, namespace: shop}\nspec: {pods: "+
		"{template: {spec: {hostPID: true}}}}\n",
		"# \napiVersion: v1\nkind: Pod\nmetadata:\n  generateName: r-xxxxx-\n"+ownedBy("argoproj.io/v1alpha1", "Rollout",
			"r-xxxxx")+"spec:\n  hostPID: true\n")

	fails := func(paths Paths, gvk schema.GroupVersionKind, text, want string) {
		t.Helper()
		if _, err := paths.Children(gvk, "rollouts", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	fails(nil, schema.FromAPIVersionAndKind("apps/v1", "Deployment"), `{"spec":1}`, "cannot make the pods of the Deployment")
	fails(nil, schema.FromAPIVersionAndKind("apps/v1", "DaemonSet"), `{"spec":{"template":{"spec":{"affinity":1}}}}`,
		"cannot make the pods of the DaemonSet")
	fails(Paths{"rollouts.argoproj.io": ".spec.template"}, schema.FromAPIVersionAndKind("argoproj.io/v1", "Rollout"), `{"spec":{}}`,
		".spec.template: got nothing, want a pod template")
}

func TestPods(t *testing.T) {
	f := func(object string, want ...string) {
		t.Helper()
		got := strings.Join(made(t, nil, object), "---\n")
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("got no %q in\n%s", text, got)
			}
		}
	}
	f(`apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  serviceName: dbs
  ordinals: {start: 3}
  selector: {matchLabels: {app: db}}
  volumeClaimTemplates: [{metadata: {name: data, labels: {a: b}}, spec: {storageClassName: fast}}]
  template:
    spec: {volumes: [{name: data, emptyDir: {}}, {name: tmp, emptyDir: {}}]}
`, "# statefulset-controller\napiVersion: v1\nkind: PersistentVolumeClaim", "    a: b\n    app: db\n  name: data-db-3\n",
		"  storageClassName: fast\n", "kind: Pod\n", "  generateName: db-\n", "    apps.kubernetes.io/pod-index: \"3\"\n",
		"    statefulset.kubernetes.io/pod-name: db-3\n", "  name: db-3\n",
		"  hostname: db-3\n  subdomain: dbs\n  volumes:\n  - name: data\n    persistentVolumeClaim:\n      claimName: data-db-3\n  - "+
			"emptyDir: {}\n    name: tmp\n")
	const daemon = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: shop}
spec:
  template:
    spec:
      hostNetwork: HOST
      tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 3}, {key: mine}]
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a}]}]}}}
`
	const begin = "  tolerations:\n  - effect: NoExecute\n    key: node.kubernetes.io/not-ready\n    operator: Exists\n  - key: mine\n  " +
		"- effect: NoExecute\n    key: node.kubernetes.io/unreachable\n"
	const end = "    key: node.kubernetes.io/unschedulable\n    operator: Exists\n"
	const affinity = "        nodeSelectorTerms:\n        - matchFields:\n          - key: metadata.name\n            operator: In\n    " +
		"        values:\n            - node\n"
	f(strings.Replace(daemon, "HOST", "false", 1)+"  #", "# daemon-set-controller\n", "  generateName: agent-\n", affinity, begin, end)
	f(strings.Replace(daemon, "HOST", "true", 1), begin, end+"  - effect: NoSchedule\n    key: node.kubernetes.io/network-unavailable\n")
	if got := strings.Join(made(t, nil, strings.Replace(daemon, "HOST", "false", 1)), ""); strings.Contains(got, "network-unavailable") {
		t.Errorf("got a toleration for hostNetwork without it:\n%s", got)
	}
	f(`apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: shop}
spec:
  completionMode: Indexed
  template:
    spec: {containers: [{name: a}, {name: b, env: [{name: JOB_COMPLETION_INDEX, value: x}]}]}
`, "  generateName: j-0-\n", "    batch.kubernetes.io/job-completion-index: \"0\"\n  finalizers:", "  hostname: j-0\n",
		"  - env:\n    - name: JOB_COMPLETION_INDEX\n      valueFrom:\n        fieldRef:\n          fieldPath: "+
			"metadata.labels['batch.kubernetes.io/job-completion-index']\n    name: a\n",
		"  - env:\n    - name: JOB_COMPLETION_INDEX\n      value: x\n    name: b\n")
}

func TestSetDefaults(t *testing.T) {
	f := func(before, after string) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(before))
		setDefaults(&o)
		if got := string(o.Root().AppendJSON(nil)); got != after || o.Err() != nil {
			t.Errorf("%s\ngot  %s, %v\nwant %s", before, got, o.Err(), after)
		}
	}
	f(`{}`, `{}`)
	f(`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"500m"}}}],`+
		`"initContainers":[{"resources":{"limits":{"cpu":1}}}]}}`,
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"500m","memory":"1Gi"}}}],`+
			`"initContainers":[{"resources":{"limits":{"cpu":1},"requests":{"cpu":1}}}]}}`)
	f(`{"spec":{"hostNetwork":true,"containers":[{"ports":[{"containerPort":80},{"containerPort":81,"hostPort":82},{}]}]}}`,
		`{"spec":{"hostNetwork":true,"containers":[{"ports":[{"containerPort":80,"hostPort":80},{"containerPort":81,`+
			`"hostPort":82},{}]}]}}`)
	f(`{"spec":{"containers":[{"ports":[{"containerPort":80}]}]}}`,
		`{"spec":{"containers":[{"ports":[{"containerPort":80}]}]}}`)
	f(`{"spec":{"serviceAccount":"a"}}`, `{"spec":{"serviceAccount":"a","serviceAccountName":"a"}}`)
	f(`{"spec":{"serviceAccount":"a","serviceAccountName":"b"}}`, `{"spec":{"serviceAccount":"b","serviceAccountName":"b"}}`)
}

// TestCase shows that the names of members must be equal, as for kube-apiserver: a second
// template in capital letters does not take the place of the first.
func TestCase(t *testing.T) {
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"} {
		text := `{"apiVersion":"apps/v1","kind":"` + kind + `","metadata":{"name":"a"},
			"spec":{"template":{"spec":{"hostPID":true}},"Template":{"spec":{}},"TEMPLATE":{}},"Spec":{"template":{"spec":{}}}}`
		children, err := Paths(nil).Children(schema.FromAPIVersionAndKind("apps/v1", kind), "", []byte(text))
		if err != nil || len(children) != 1 || !strings.Contains(string(children[0].JSON), `"hostPID":true`) {
			t.Errorf("%s: got %+v, %v, want a child with hostPID", kind, children, err)
		}
	}
}

func TestFindTemplate(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := FindTemplate([]byte(text)); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	const template = `{"spec":{"containers":[{"name":"a","image":"b"}]}}`
	f(`{"spec":{"template":`+template+`}}`, ".spec.template")
	f(`{"spec":{"jobTargetRef":{"parallelism":1,"template":`+template+`}}}`, ".spec.jobTargetRef.template")
	f(`{"spec":{"replicas":[`+template+`]}}`, "")                  // no path can name it
	f(`{"spec":{"a.b":`+template+`}}`, "")                         // it would be another path
	f(template, "")                                                // as a Prometheus, which has patches for containers
	f(`{"spec":{"a":{"spec":{"containers":[{"name":"a"}]}}}}`, "") // no image
	f(`{"spec":{"a":{"spec":{"containers":{"image":"b"}}}}}`, "")
	f(`{"spec":"containers"}`, "")
	f(`{"a":{"a":{"a":{"a":{"a":{"a":{"a":`+template+`}}}}}}}`, ".a.a.a.a.a.a.a")
	f(`{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":`+template+`}}}}}}}}`, "") // too deep
	f(`{"`+strings.Repeat("a", 1001)+`":`+template+`}`, "")               // nobody would write it
	f(`{"containers":`, "")
}
