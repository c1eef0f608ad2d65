package workload

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// edit changes the spec of a template.
func (t *template) edit(change func(spec *codec.Object)) error {
	if len(t.Spec) == 0 {
		t.Spec = []byte("{}")
	}
	var spec codec.Object
	spec.Reset(t.Spec)
	change(&spec)
	t.Spec = spec.Root().AppendJSON(nil)
	return spec.Err()
}

// set sets a value that can be marshalled.
func set(o *codec.Object, value any, path ...string) {
	text, _ := json.Marshal(value)
	o.Set(string(text), path...)
}

// statefulSet makes the claims and the pod of the first replica
// (pkg/controller/statefulset/stateful_set_utils.go newStatefulSetPod).
func statefulSet(o *object) ([]Child, error) {
	t := o.podTemplate()
	name := fmt.Sprintf("%s-%d", o.Metadata.Name, o.Spec.Ordinals.Start)
	hash := t.hash()
	t.Metadata.Name = name
	t.Metadata.label(appsv1.StatefulSetPodNameLabel, name)
	t.Metadata.label(appsv1.PodIndexLabel, fmt.Sprint(o.Spec.Ordinals.Start))
	t.Metadata.label(appsv1.ControllerRevisionHashLabelKey, o.Metadata.Name+"-"+hash)

	var selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	}
	if len(o.Spec.Selector) > 0 {
		if err := decode(o.Spec.Selector, &selector); err != nil {
			return nil, err
		}
	}
	var children []Child
	volumes := []json.RawMessage{}
	claimed := make(map[string]bool)
	for _, claim := range o.Spec.VolumeClaimTemplates {
		m := metadata{
			Name:   claim.Metadata.Name + "-" + name,
			Labels: claim.Metadata.Labels, Annotations: claim.Metadata.Annotations, Finalizers: claim.Metadata.Finalizers,
		}
		for key, value := range selector.MatchLabels {
			m.label(key, value)
		}
		child, err := o.child("statefulset-controller", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", m, claim.Spec)
		if err != nil {
			return nil, err
		}
		children = append(children, child)
		claimed[claim.Metadata.Name] = true
		volume, err := json.Marshal(corev1.Volume{Name: claim.Metadata.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: m.Name},
		}})
		if err != nil {
			return nil, err
		}
		volumes = append(volumes, volume)
	}
	err := t.edit(func(spec *codec.Object) {
		for _, volume := range spec.Get("volumes").Elements() {
			if !claimed[volume.Get("name").String()] {
				volumes = append(volumes, volume.AppendJSON(nil))
			}
		}
		if len(volumes) > 0 {
			set(spec, volumes, "volumes")
		}
		spec.SetString(name, "hostname")
		if o.Spec.ServiceName != "" {
			spec.SetString(o.Spec.ServiceName, "subdomain")
		}
	})
	if err != nil {
		return nil, err
	}
	pod, err := o.pod("statefulset-controller", t)
	return append(children, pod), err
}

// daemonTolerations are the tolerations of the pods of every DaemonSet
// (pkg/controller/daemon/util AddOrUpdateDaemonPodTolerations). The last one is
// only for pods with the node's network.
var daemonTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// unknownNode is the name of the node of a DaemonSet's pod.
const unknownNode = "node"

// daemonSet makes the pod of a node (pkg/controller/daemon podsShouldBeOnNode,
// CreatePodTemplate and ReplaceDaemonSetPodNodeNameNodeAffinity).
func daemonSet(o *object) ([]Child, error) {
	t := o.podTemplate()
	t.Metadata.label(appsv1.ControllerRevisionHashLabelKey, t.hash())
	t.Metadata.label("pod-template-generation", "1") // pkg/apis/extensions DaemonSetTemplateGenerationKey
	err := t.edit(func(spec *codec.Object) {
		tolerations := []corev1.Toleration{}
		if existing := spec.Get("tolerations"); existing.Kind() == codec.KindArray {
			if decode(existing.AppendJSON(nil), &tolerations) != nil {
				return // unchanged: a Pod cannot have these fields, and plugins report that
			}
		}
		for i := range daemonTolerations {
			if i < len(daemonTolerations)-1 || spec.Get("hostNetwork").Bool() {
				tolerations = tolerate(tolerations, daemonTolerations[i])
			}
		}
		set(spec, tolerations, "tolerations")
		set(spec, []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{unknownNode}},
		}}}, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	})
	if err != nil {
		return nil, err
	}
	return one(o.pod("daemon-set-controller", t))
}

// tolerate adds a toleration, or replaces that of the same taint
// (pkg/apis/core/v1/helper AddOrUpdateTolerationInPodSpec).
func tolerate(tolerations []corev1.Toleration, toleration corev1.Toleration) []corev1.Toleration {
	for i := range tolerations {
		if toleration.MatchToleration(&tolerations[i]) {
			tolerations[i] = toleration
			return tolerations
		}
	}
	return append(tolerations, toleration)
}

// job makes the pod, of the first index if it is an indexed Job
// (pkg/controller/job manageJob; pkg/registry/batch/job/strategy.go
// generateSelector for the labels).
func job(o *object) ([]Child, error) {
	t := o.podTemplate()
	for _, key := range []string{batchv1.JobNameLabel, "job-name"} {
		t.Metadata.label(key, o.Metadata.Name)
	}
	for _, key := range []string{batchv1.ControllerUidLabel, "controller-uid"} {
		t.Metadata.label(key, NoUID)
	}
	t.Metadata.Finalizers = append(t.Metadata.Finalizers[:len(t.Metadata.Finalizers):len(t.Metadata.Finalizers)], batchv1.JobTrackingFinalizer)
	if o.Spec.CompletionMode == string(batchv1.IndexedCompletion) {
		if err := indexed(o, &t); err != nil {
			return nil, err
		}
	}
	return one(o.pod("job-controller", t))
}

// indexed changes a template to that of the first index
// (pkg/controller/job/indexed_job_utils.go).
func indexed(o *object, t *template) error {
	const env = "JOB_COMPLETION_INDEX"
	t.Metadata.GenerateName = o.Metadata.Name + "-0-"
	t.Metadata.annotate(batchv1.JobCompletionIndexAnnotation, "0")
	t.Metadata.label(batchv1.JobCompletionIndexAnnotation, "0")
	index := corev1.EnvVar{Name: env, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']",
	}}}
	return t.edit(func(spec *codec.Object) {
		spec.SetString(o.Metadata.Name+"-0", "hostname")
		for _, list := range []string{"initContainers", "containers"} {
			for _, container := range spec.Get(list).Elements() {
				has := false
				for _, v := range container.Get("env").Elements() {
					has = has || v.Get("name").EqualString(env)
				}
				if text, err := json.Marshal(index); err == nil && !has {
					container.Append(string(text), "env")
				}
			}
		}
	})
}
