package webhook

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// echoed is the annotation that plugin Echo writes.
const echoed = "e2e.example.com/echo"

// wire sends every kind of request through the plugin Echo, which reports its review in a warning,
// with each version of AdmissionReview.
func (s *stand) wire(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			mutating, validating := s.hook("/mutate/Echo"), s.hook("/validate/Echo")
			mutating.Versions, validating.Versions = []string{version}, []string{version}
			w := &wire{stand: s, t: t, version: version, namespace: s.namespace(t, "wire-"+version)}
			s.validating(t, validating)
			s.mutating(t, mutating)
			s.warnings.take()
			w.writes()
			w.subresources()
			w.connects()
			w.users()
			w.customs()
			w.deletes()
			w.audit()
		})
		t.Run("denial-"+version, func(t *testing.T) { s.denial(t, version) })
	}
	t.Run("sizes", s.sizes)
	t.Run("kubectl", s.kubectl)
}

type wire struct {
	*stand
	t                  *testing.T
	version, namespace string
}

// got checks that both webhooks were called for a request, and that the stored object is the one in
// the answer, annotated with the operation. Subresources answer with other objects, which are nil
// here.
func (w *wire) got(request string, object metav1.Object, annotation string, err error) {
	w.t.Helper()
	w.asked(request, "dryRun=false user=admin extra=")
	if err != nil {
		w.t.Errorf("%s: %v", request, err)
	}
	if object == nil || err != nil {
		return
	}
	if object.GetAnnotations()[echoed] != annotation {
		w.t.Errorf("%s: got annotations %v, want %q", request, object.GetAnnotations(), annotation)
	}
	stored, err := w.read(object)
	if err != nil || !equality.Semantic.DeepEqual(stored, object) {
		w.t.Errorf("%s: got %v stored, %v, want what was answered: %v", request, stored, err, object)
	}
}

// read reads the object from the API server.
func (w *wire) read(object metav1.Object) (any, error) {
	ctx := context.Background()
	switch object := object.(type) {
	case *corev1.Pod:
		return w.Client.CoreV1().Pods(w.namespace).Get(ctx, object.Name, metav1.GetOptions{})
	case *corev1.ConfigMap:
		return w.Client.CoreV1().ConfigMaps(w.namespace).Get(ctx, object.Name, metav1.GetOptions{})
	case *unstructured.Unstructured:
		resource, err := w.Resource(object)
		if err != nil {
			return nil, err
		}
		return resource.Get(ctx, object.GetName(), metav1.GetOptions{})
	}
	return nil, fmt.Errorf("cannot read a %T", object)
}

func (w *wire) asked(request, by string) {
	w.t.Helper()
	all := w.warnings.take()
	for _, phase := range []string{"mutate", "validate"} {
		want := fmt.Sprintf("%s %s admission.k8s.io/%s %s", phase, request, w.version, by)
		if !slices.ContainsFunc(all, func(got string) bool { return strings.HasPrefix(got, want) }) {
			w.t.Errorf("got warnings %q, want one with %q", all, want)
		}
	}
}

func (w *wire) pod(name string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": w.namespace}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func (w *wire) writes() {
	ctx, pods := context.Background(), w.recording.Client.CoreV1().Pods(w.namespace)
	pod, err := pods.Create(ctx, w.pod("web"), metav1.CreateOptions{})
	w.got("CREATE pods web", pod, "CREATE", err)

	pod.Annotations = nil
	pod, err = pods.Update(ctx, pod, metav1.UpdateOptions{})
	w.got("UPDATE pods web", pod, "UPDATE", err)

	for kind, patch := range map[types.PatchType]string{
		types.JSONPatchType:           `[{"op":"replace","path":"/metadata/annotations","value":{}}]`,
		types.MergePatchType:          `{"metadata":{"annotations":null}}`,
		types.StrategicMergePatchType: `{"metadata":{"annotations":null}}`,
	} {
		pod, err = pods.Patch(ctx, "web", kind, []byte(patch), metav1.PatchOptions{})
		w.got("UPDATE pods web", pod, "UPDATE", err)
	}
	applied := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","labels":{"applied":"yes"}}}`
	pod, err = pods.Patch(ctx, "web", types.ApplyYAMLPatchType, []byte(applied), metav1.PatchOptions{FieldManager: "e2e"})
	w.got("UPDATE pods web", pod, "UPDATE", err)
	created := strings.ReplaceAll(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"},"data":{"k":"<&>"}}`,
		"NAME", "applied")
	config, err := w.recording.Client.CoreV1().ConfigMaps(w.namespace).Patch(ctx, "applied", types.ApplyYAMLPatchType, []byte(created),
		metav1.PatchOptions{FieldManager: "e2e"})
	w.got("CREATE configmaps applied", config, "CREATE", err)

	dryRun, err := pods.Create(ctx, w.pod("dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || dryRun.Annotations[echoed] != "CREATE" {
		w.t.Errorf("dry run: got %v, %v", dryRun, err)
	}
	w.asked("CREATE pods dry", "dryRun=true user=admin")
	if _, err := pods.Get(ctx, "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		w.t.Errorf("a dry run was stored: %v", err)
	}
}

// customs writes a custom resource in both of its versions. One of them prunes unknown fields
// before webhooks are called.
func (w *wire) customs() {
	ctx, plural := context.Background(), "wires"+w.version
	w.define(w.t, plural)
	w.warnings.take()
	request := plural + " c"
	for _, version := range []string{"v1", "v2"} {
		object := parse(w.t, custom(w.namespace, plural, version, `unknown: "<é>", webhook-e2e-test: "1.50"`))
		resource, err := w.recording.Resource(object)
		if err != nil {
			w.t.Fatal(err)
		}
		object, err = resource.Create(ctx, object, metav1.CreateOptions{})
		w.got("CREATE "+request, object, "CREATE", err)
		want := map[string]string{"webhook-e2e-test": "1.50"}
		if version == "v1" {
			want["unknown"] = "<é>"
		}
		if data, _, _ := unstructured.NestedStringMap(object.Object, "data"); !maps.Equal(data, want) {
			w.t.Errorf("%s: got data %v, want %v", version, data, want)
		}
		object.SetAnnotations(nil)
		object, err = resource.Update(ctx, object, metav1.UpdateOptions{})
		w.got("UPDATE "+request, object, "UPDATE", err)
		for kind, patch := range map[types.PatchType]string{
			types.JSONPatchType:  `[{"op":"remove","path":"/metadata/annotations"}]`,
			types.MergePatchType: `{"metadata":{"annotations":null}}`,
			types.ApplyYAMLPatchType: `{"apiVersion":"e2e.example.com/` + version + `","kind":"` + kindOf(plural) +
				`","metadata":{"name":"c"},"data":{"mutation-start":"no"}}`,
		} {
			var options metav1.PatchOptions
			if kind == types.ApplyYAMLPatchType {
				options.FieldManager = "e2e"
			}
			object, err = resource.Patch(ctx, "c", kind, []byte(patch), options)
			w.got("UPDATE "+request, object, "UPDATE", err)
		}
		err = resource.Delete(ctx, "c", metav1.DeleteOptions{})
		w.got("DELETE "+request, nil, "", err)
	}
}

func (w *wire) subresources() {
	ctx, core := context.Background(), w.recording.Client.CoreV1()
	pods := core.Pods(w.namespace)
	pod, err := pods.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	pod.Status.Message = "changed"
	pod, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	w.got("UPDATE pods/status web", nil, "", err)

	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "e", Image: "i", TerminationMessagePolicy: corev1.TerminationMessageReadFile}}}
	_, err = pods.UpdateEphemeralContainers(ctx, "web", pod, metav1.UpdateOptions{})
	w.got("UPDATE pods/ephemeralcontainers web", nil, "", err)

	err = pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}, metav1.CreateOptions{})
	w.got("CREATE pods/binding web", nil, "", err)

	_, err = core.ServiceAccounts(w.namespace).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.got("CREATE serviceaccounts/token default", nil, "", err)

	w.mustCreate(w.t, `{apiVersion: v1, kind: ReplicationController, metadata: {name: rc, namespace: `+w.namespace+`},
spec: {replicas: 0, selector: {a: b}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`)
	_, err = core.ReplicationControllers(w.namespace).UpdateScale(ctx, "rc", &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "rc", Namespace: w.namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 1}},
		metav1.UpdateOptions{})
	w.got("UPDATE replicationcontrollers/scale rc", nil, "", err)

	if _, err := pods.Create(ctx, w.pod("evicted"), metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	err = pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "evicted"}})
	w.got("CREATE pods/eviction evicted", nil, "", err)
}

// connects connects to a pod on a node that does not exist: the API server calls its webhooks
// before it notices.
func (w *wire) connects() {
	for _, sub := range []string{"exec?command=ls&stdout=true", "attach?stdout=true", "portforward", "proxy"} {
		name, _, _ := strings.Cut(sub, "?")
		verb := w.recording.Client.CoreV1().RESTClient().Post()
		if name == "proxy" {
			verb = w.recording.Client.CoreV1().RESTClient().Get()
		}
		result := verb.RequestURI("/api/v1/namespaces/" + w.namespace + "/pods/web/" + sub).
			Do(context.Background())
		if result.Error() == nil {
			w.t.Errorf("%s: got no error, want one of a node that is not there", name)
		}
		w.got("CONNECT pods/"+name+" web", nil, "", nil)
	}
}

func (w *wire) users() {
	config := rest.CopyConfig(w.Config)
	config.WarningHandler = w.warnings
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "alice", Groups: []string{"developers"}, Extra: map[string][]string{"scopes": {"view", `<"é">`}},
	}
	_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Pods(w.namespace).
		Create(context.Background(), w.pod("of-alice"), metav1.CreateOptions{})
	if err != nil {
		w.t.Error(err)
	}
	w.asked("CREATE pods of-alice", `dryRun=false user=alice extra={"scopes":["view","`)
}

func (w *wire) deletes() {
	ctx, pods := context.Background(), w.recording.Client.CoreV1().Pods(w.namespace)
	err := pods.Delete(ctx, "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	w.got("DELETE pods web", nil, "", err)
	if _, err := pods.Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		w.t.Errorf("a deleted pod is there: %v", err)
	}
	// A call for each object, without its name.
	err = pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))},
		metav1.ListOptions{LabelSelector: "of=" + w.namespace})
	w.got("DELETE pods ", nil, "", err)
}

// audit reads the plugin's annotations in the audit log.
func (w *wire) audit() {
	key := cluster.WebhookName(0) + "/echo"
	for _, want := range []string{"CREATE", "UPDATE", "DELETE", "CONNECT"} {
		events, err := w.Audit(func(e *auditv1.Event) bool {
			return e.ObjectRef != nil && e.ObjectRef.Namespace == w.namespace && e.Annotations[key] == want
		})
		if err != nil || len(events) == 0 {
			w.t.Errorf("audit annotation %s=%s: got %d, %v", key, want, len(events), err)
		}
	}
}

// denial checks a client's view of a denial.
func (s *stand) denial(t *testing.T, version string) {
	namespace := s.namespace(t, "denial-"+version)
	hooks := []cluster.Webhook{s.hook("/validate/AlwaysPullImages"), s.hook("/validate/DenyUnwanted")}
	for i := range hooks {
		hooks[i].Versions = []string{version}
	}
	s.validating(t, hooks...)
	f := func(manifest string, i int, code int32, reason metav1.StatusReason, message, name string) {
		t.Helper()
		_, err := s.create(t, manifest)
		status, ok := err.(apierrors.APIStatus)
		if !ok {
			t.Errorf("got %v, want a denial", err)
			return
		}
		got := status.Status()
		gotName := ""
		if got.Details != nil {
			gotName = got.Details.Name
		}
		if got.Code != code || got.Reason != reason || got.Message != cluster.Prefix(i)+message || gotName != name {
			t.Errorf("got %+v, want %d, %s, %s%s, %s", got, code, reason, cluster.Prefix(i), message, name)
		}
	}
	f(`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: `+namespace+`}, data: {webhook-e2e-test: webhook-disallow}}`,
		1, http.StatusForbidden, metav1.StatusReasonForbidden, `DenyUnwanted: configmaps "c" is forbidden: the data contains unwanted `+
			`key and value`, "c")
	f(`{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: `+namespace+`}, spec: {containers: [{name: c, image: "i:v1"}]}}`,
		0, http.StatusInternalServerError, "",
		`AlwaysPullImages: pods "p" is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: "IfNotPresent": supported `+
			`values: "Always"`, "")
}
