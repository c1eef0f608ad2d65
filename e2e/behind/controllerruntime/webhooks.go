package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// prefix is the prefix of labels and annotations by which an object asks for a behavior.
const prefix = "behind.example.com/"

// pods defaults and validates Pods, their status and their other subresources.
type pods struct{}

func (pods) Default(ctx context.Context, pod *corev1.Pod) error {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return err
	}
	if request.SubResource != "" {
		return nil
	}
	if pod.Annotations[prefix+"default"] == "refuse" {
		return errors.New("no default for this pod")
	}
	set(&pod.ObjectMeta, "dry-run", fmt.Sprint(request.DryRun != nil && *request.DryRun))
	set(&pod.ObjectMeta, "asked-by", request.UserInfo.Username)
	set(&pod.ObjectMeta, "containers", fmt.Sprint(len(pod.Spec.Containers)))
	if request.Operation != admissionv1.Create {
		return nil
	}
	if pod.Spec.SecurityContext == nil {
		pod.Spec.SecurityContext = new(corev1.PodSecurityContext)
	}
	if pod.Spec.SecurityContext.RunAsNonRoot == nil {
		pod.Spec.SecurityContext.RunAsNonRoot = new(true)
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: prefix + "spot", Operator: corev1.TolerationOpExists})
	if pod.Labels[prefix+"sidecar"] != "" {
		pod.Spec.Containers = append([]corev1.Container{{Name: "sidecar", Image: "sidecar:v1"}}, pod.Spec.Containers...)
	}
	return nil
}

// set sets an annotation.
func set(m *metav1.ObjectMeta, name, value string) {
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[prefix+name] = value
}

func (pods) ValidateCreate(_ context.Context, pod *corev1.Pod) (admission.Warnings, error) {
	return check(pod)
}

func (pods) ValidateUpdate(_ context.Context, before, pod *corev1.Pod) (admission.Warnings, error) {
	if was := before.Labels[prefix+"tier"]; was != pod.Labels[prefix+"tier"] {
		return admission.Warnings{"tiers are for ever"}, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod.Name,
			fmt.Errorf("tier was %q", was))
	}
	return check(pod)
}

func (pods) ValidateDelete(_ context.Context, pod *corev1.Pod) (admission.Warnings, error) {
	if pod.Labels[prefix+"keep"] != "" {
		return nil, apierrors.NewTooManyRequests("keep this pod", 0)
	}
	return admission.Warnings{"gone: " + pod.Name}, nil
}

// check returns an error for each container whose image has no tag.
func check(pod *corev1.Pod) (warnings admission.Warnings, err error) {
	var all field.ErrorList
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if !strings.Contains(c.Image, ":") {
			all = append(all, field.Invalid(field.NewPath("spec", "containers").Index(i).Child("image"), c.Image, "has no tag"))
		}
		if len(c.Resources.Limits) == 0 {
			warnings = append(warnings, fmt.Sprintf("container %q has no limits — that is \"unwise\"", c.Name))
		}
	}
	if len(all) > 0 {
		return warnings, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, pod.Name, all)
	}
	return warnings, nil
}

// deployments wants replicas and gives labels.
type deployments struct{}

func (deployments) Default(_ context.Context, d *appsv1.Deployment) error {
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	d.Labels[prefix+"owner"] = d.Namespace
	if d.Spec.Template.Annotations == nil {
		d.Spec.Template.Annotations = map[string]string{}
	}
	d.Spec.Template.Annotations[prefix+"injected"] = "true"
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		c.Env = append([]corev1.EnvVar{{Name: fmt.Sprint("NUMBER_", len(c.Env)), Value: c.Name}}, c.Env...)
	}
	return nil
}

func (deployments) ValidateCreate(_ context.Context, d *appsv1.Deployment) (admission.Warnings, error) {
	if d.Spec.Replicas != nil && *d.Spec.Replicas > 10 {
		return nil, fmt.Errorf("%d replicas are too many: at most 10", *d.Spec.Replicas)
	}
	return nil, nil
}

func (v deployments) ValidateUpdate(ctx context.Context, before, d *appsv1.Deployment) (admission.Warnings, error) {
	if before.Generation != d.Generation {
		return admission.Warnings{fmt.Sprintf("generation %d becomes %d", before.Generation, d.Generation)}, nil
	}
	return v.ValidateCreate(ctx, d)
}

func (deployments) ValidateDelete(_ context.Context, d *appsv1.Deployment) (admission.Warnings, error) {
	if d.Spec.Replicas != nil && *d.Spec.Replicas > 0 {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "deployments"}, d.Name,
			errors.New("scale it down first"))
	}
	return nil, nil
}

// configMaps sorts nothing and refuses keys.
type configMaps struct{}

func (configMaps) Default(_ context.Context, c *corev1.ConfigMap) error {
	switch c.Annotations[prefix+"default"] {
	case "refuse":
		return apierrors.NewServiceUnavailable("defaults are out")
	case "panic":
		panic("this one") // controller-runtime answers with an error
	}
	for key, value := range c.Data {
		c.Data[key] = strings.ToUpper(value)
	}
	return nil
}

func (configMaps) ValidateCreate(_ context.Context, c *corev1.ConfigMap) (admission.Warnings, error) {
	if _, ok := c.Data["password"]; ok {
		return admission.Warnings{"", strings.Repeat("long", 100)}, errors.New("passwords belong into Secrets")
	}
	return nil, nil
}

func (v configMaps) ValidateUpdate(ctx context.Context, _, c *corev1.ConfigMap) (admission.Warnings, error) {
	return v.ValidateCreate(ctx, c)
}

func (configMaps) ValidateDelete(context.Context, *corev1.ConfigMap) (admission.Warnings, error) {
	return nil, nil
}

// answers returns the answer in an annotation such as behind.example.com/mutate.create: an
// AdmissionResponse, with the patch as JSON in jsonPatch.
type answers string

// Handle implements admission.Handler.
func (a answers) Handle(_ context.Context, request admission.Request) admission.Response {
	raw := request.Object.Raw
	if request.Operation == admissionv1.Delete {
		raw = request.OldObject.Raw
	}
	var object metav1.PartialObjectMetadata
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &object); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
	}
	text, ok := object.Annotations[prefix+string(a)+"."+strings.ToLower(string(request.Operation))]
	if !ok {
		return admission.Allowed("")
	}
	var wanted struct {
		admissionv1.AdmissionResponse `json:",inline"`
		JSONPatch                     json.RawMessage `json:"jsonPatch"`
	}
	if err := json.Unmarshal([]byte(text), &wanted); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if len(wanted.JSONPatch) > 0 {
		wanted.Patch, wanted.PatchType = wanted.JSONPatch, new(admissionv1.PatchTypeJSONPatch)
	}
	return admission.Response{AdmissionResponse: wanted.AdmissionResponse}
}
