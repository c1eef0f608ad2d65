// Package workload creates the objects that kube-controller-manager creates for workloads: a
// ReplicaSet for a Deployment, a Pod for a ReplicaSet, a Job for a CronJob and so on. So
// their Pods can be reviewed before they exist, and without a cluster.
//
// Values that only a cluster knows are fixed: uids are NoUID, suffixes of names are derived
// from the object or are UnknownSuffix, and the Job of a CronJob is that of a fixed minute.
package workload

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	// NoUID is the uid of objects that do not exist in a cluster.
	NoUID = "00000000-0000-0000-0000-000000000000"
	// UnknownSuffix replaces the random characters that kube-apiserver appends to
	// metadata.generateName.
	UnknownSuffix = "xxxxx"
)

// Child is an object that a controller creates for another one.
type Child struct {
	Kind      schema.GroupVersionKind
	Resource  string // plural
	Namespace string
	Name      string // "" if the API server generates one
	// Controller is the name of the controller's service account in kube-system, "" if it
	// is unknown.
	Controller string
	JSON       []byte
}

// Paths contains the paths of the pod templates of custom workloads, such as
// ".spec.template". The keys are the resource with its group, such as
// "rollouts.argoproj.io".
type Paths map[string]string

// KnownPaths returns paths with those of workloads that many clusters have, unless paths has others for them.
func KnownPaths(paths Paths) Paths {
	all := Paths{"rollouts.argoproj.io": ".spec.template"} // github.com/argoproj/argo-rollouts pkg/apis/rollouts/v1alpha1
	maps.Copy(all, paths)
	return all
}

// object has the fields of a workload that are read.
type object struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       struct {
		Template        template        `json:"template"`
		JobTemplate     template        `json:"jobTemplate"`
		Selector        json.RawMessage `json:"selector"`
		Replicas        json.RawMessage `json:"replicas"`
		MinReadySeconds json.RawMessage `json:"minReadySeconds"`
		ServiceName     string          `json:"serviceName"`
		Ordinals        struct {
			Start int `json:"start"`
		} `json:"ordinals"`
		CompletionMode       string  `json:"completionMode"`
		VolumeClaimTemplates []claim `json:"volumeClaimTemplates"`
	} `json:"spec"`
}

// decode decodes JSON as kube-apiserver does: the names of members must be equal, also in
// capital letters.
func decode(text []byte, into any) error { return kjson.UnmarshalCaseSensitivePreserveInts(text, into) }

type metadata struct {
	Name         string            `json:"name,omitempty"`
	GenerateName string            `json:"generateName,omitempty"`
	Namespace    string            `json:"namespace,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	Finalizers   []string          `json:"finalizers,omitempty"`
	Owners       []owner           `json:"ownerReferences,omitempty"`
}

type owner struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	Controller         bool   `json:"controller"`
	BlockOwnerDeletion bool   `json:"blockOwnerDeletion"`
}

// template is a PodTemplateSpec or a JobTemplateSpec.
type template struct {
	Metadata metadata        `json:"metadata"`
	Spec     json.RawMessage `json:"spec,omitempty"`
}

type claim struct {
	Metadata metadata        `json:"metadata"`
	Spec     json.RawMessage `json:"spec,omitempty"`
}

// newObject is an object that a controller creates.
type newObject struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec"`
}

// maker makes the children of an object.
type maker func(o *object) ([]Child, error)

var makers = map[schema.GroupKind]maker{
	{Group: "apps", Kind: "Deployment"}:  deployment,
	{Group: "apps", Kind: "ReplicaSet"}:  replicas("replicaset-controller"),
	{Kind: "ReplicationController"}:      replicas("replication-controller"),
	{Group: "apps", Kind: "StatefulSet"}: statefulSet,
	{Group: "apps", Kind: "DaemonSet"}:   daemonSet,
	{Group: "batch", Kind: "Job"}:        job,
	{Group: "batch", Kind: "CronJob"}:    cronJob,
}

// Controller returns the name of the service account in kube-system with which
// kube-controller-manager creates objects for owners of a kind. It returns "" if
// kube-controller-manager creates none.
func Controller(owner schema.GroupKind) string { return controllers[owner] }

var controllers = map[schema.GroupKind]string{
	{Group: "apps", Kind: "Deployment"}:  "deployment-controller",
	{Group: "apps", Kind: "ReplicaSet"}:  "replicaset-controller",
	{Kind: "ReplicationController"}:      "replication-controller",
	{Group: "apps", Kind: "StatefulSet"}: "statefulset-controller",
	{Group: "apps", Kind: "DaemonSet"}:   "daemon-set-controller",
	{Group: "batch", Kind: "Job"}:        "job-controller",
	{Group: "batch", Kind: "CronJob"}:    "cronjob-controller",
}

// Children returns the objects that the controller of an object creates first. Equal pods
// are returned only once. The result is empty if the object has no such controller. text is
// the JSON of the object as it is stored. The error says that the object is invalid.
func (p Paths) Children(gvk schema.GroupVersionKind, resource string, text []byte) ([]Child, error) {
	from, path := makers[gvk.GroupKind()], p[schema.GroupResource{Group: gvk.Group, Resource: resource}.String()]
	if from == nil && path == "" {
		return nil, nil
	}
	o := new(object)
	var err error
	if path != "" {
		from = replicas("")
		var isElsewhere bool
		if isElsewhere, err = o.readTemplate(text, path); isElsewhere {
			return nil, nil
		}
	} else {
		err = decode(text, o)
	}
	if o.Metadata.Name == "" {
		o.Metadata.Name = o.Metadata.GenerateName + UnknownSuffix
	}
	var children []Child
	if err == nil {
		children, err = from(o)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the pods of the %s: %w", gvk.Kind, err)
	}
	return children, nil
}

// readTemplate reads an object that has its pod template at a path. isElsewhere is true for a Rollout that has the
// template of another object.
func (o *object) readTemplate(text []byte, path string) (isElsewhere bool, err error) {
	var head struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   metadata `json:"metadata"`
	}
	if err := decode(text, &head); err != nil {
		return false, err
	}
	o.APIVersion, o.Kind, o.Metadata = head.APIVersion, head.Kind, head.Metadata
	var whole codec.Object
	whole.Reset(text)
	found := whole.Get(strings.Split(strings.Trim(path, "."), ".")...)
	if found.Kind() != codec.KindObject {
		if head.Kind == "Rollout" && whole.Get("spec", "workloadRef").Exists() {
			return true, nil
		}
		return false, fmt.Errorf("%s: got %s, want a pod template", path, found.Kind())
	}
	return false, decode(found.AppendJSON(nil), &o.Spec.Template)
}

// child makes a child: controlled by o, and in its namespace.
func (o *object) child(controller, apiVersion, kind, resource string, m metadata, spec []byte) (Child, error) {
	m.Namespace = o.Metadata.Namespace
	m.Owners = []owner{{o.APIVersion, o.Kind, o.Metadata.Name, NoUID, true, true}}
	if len(spec) == 0 {
		spec = []byte("{}")
	}
	text, err := json.Marshal(newObject{APIVersion: apiVersion, Kind: kind, Metadata: m, Spec: spec})
	return Child{
		Kind: schema.FromAPIVersionAndKind(apiVersion, kind), Resource: resource,
		Namespace: m.Namespace, Name: m.Name, Controller: controller, JSON: text,
	}, err
}

// pod makes the pod of a template (k8s.io/kubernetes pkg/controller GetPodFromTemplate). Of
// the template's metadata, it has only what pods get.
func (o *object) pod(controller string, t template) (Child, error) {
	if t.Metadata.GenerateName == "" {
		t.Metadata.GenerateName = o.Metadata.Name + "-"
	}
	return o.child(controller, "v1", "Pod", "pods", t.Metadata, t.Spec)
}

// podTemplate returns the template of the pods without the metadata that pods do not get.
func (o *object) podTemplate() template {
	t := o.Spec.Template
	t.Metadata = metadata{
		Labels: maps.Clone(t.Metadata.Labels), Annotations: maps.Clone(t.Metadata.Annotations), Finalizers: t.Metadata.Finalizers,
	}
	return t
}

func (m *metadata) label(key, value string) {
	if m.Labels == nil {
		m.Labels = make(map[string]string)
	}
	m.Labels[key] = value
}

func (m *metadata) annotate(key, value string) {
	if m.Annotations == nil {
		m.Annotations = make(map[string]string)
	}
	m.Annotations[key] = value
}

// hash returns a hash of the template. It has the form of the hash that controllers
// compute, and another value.
func (t *template) hash() string {
	h := fnv.New32a()
	_ = json.NewEncoder(h).Encode(t) // neither call fails
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// one returns a single child.
func one(c Child, err error) ([]Child, error) { return []Child{c}, err }

// replicas makes the pod of a ReplicaSet, of a ReplicationController, or of a
// custom workload.
func replicas(controller string) maker {
	return func(o *object) ([]Child, error) { return one(o.pod(controller, o.podTemplate())) }
}

// deployment makes the ReplicaSet (pkg/controller/deployment/sync.go
// getNewReplicaSet).
func deployment(o *object) ([]Child, error) {
	t := o.Spec.Template // complete, with its name if it has one
	t.Metadata.Labels = maps.Clone(t.Metadata.Labels)
	hash := t.hash()
	t.Metadata.label("pod-template-hash", hash)
	var selector struct {
		MatchLabels      map[string]string `json:"matchLabels"`
		MatchExpressions json.RawMessage   `json:"matchExpressions,omitempty"`
	}
	if len(o.Spec.Selector) > 0 {
		if err := decode(o.Spec.Selector, &selector); err != nil {
			return nil, err
		}
	}
	if selector.MatchLabels == nil {
		selector.MatchLabels = make(map[string]string)
	}
	selector.MatchLabels["pod-template-hash"] = hash
	m := metadata{Name: o.Metadata.Name + "-" + hash, Labels: t.Metadata.Labels, Annotations: maps.Clone(o.Metadata.Annotations)}
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
	m.annotate("deployment.kubernetes.io/revision", "1")
	spec, err := json.Marshal(struct {
		Replicas        json.RawMessage `json:"replicas,omitempty"`
		MinReadySeconds json.RawMessage `json:"minReadySeconds,omitempty"`
		Selector        any             `json:"selector"`
		Template        template        `json:"template"`
	}{o.Spec.Replicas, o.Spec.MinReadySeconds, selector, t})
	if err != nil {
		return nil, err
	}
	return one(o.child("deployment-controller", "apps/v1", "ReplicaSet", "replicasets", m, spec))
}

// cronJobMinute is the minute since 1970 for which a CronJob creates its Job.
const cronJobMinute = 29_000_000

// cronJob makes the Job (pkg/controller/cronjob/utils.go getJobFromTemplate2).
func cronJob(o *object) ([]Child, error) {
	t := o.Spec.JobTemplate
	m := metadata{
		Name:   fmt.Sprintf("%s-%d", o.Metadata.Name, cronJobMinute),
		Labels: t.Metadata.Labels, Annotations: maps.Clone(t.Metadata.Annotations),
	}
	m.annotate(batchv1.CronJobScheduledTimestampAnnotation, "2025-02-19T21:20:00Z")
	return one(o.child("cronjob-controller", "batch/v1", "Job", "jobs", m, t.Spec))
}
