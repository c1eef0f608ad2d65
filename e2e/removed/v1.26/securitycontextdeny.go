package main

import (
	"context"
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/kubernetes/pkg/apis/core"
	corescheme "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/securitycontext/scdeny"

	"github.com/fastadmit/fastadmit/e2e/removed"
)

// runSecurityContextDeny writes the Status of each request.
func runSecurityContextDeny() error {
	plugin := scdeny.NewSecurityContextDeny()
	return removed.Serve(nil, func(r *admissionv1.AdmissionRequest, _ string) (any, error) {
		return askSecurityContextDeny(plugin, r)
	})
}

func askSecurityContextDeny(plugin *scdeny.Plugin, r *admissionv1.AdmissionRequest) (*metav1.Status, error) {
	if !plugin.Handles(admission.Operation(r.Operation)) {
		return nil, nil
	}
	object, err := internal(r.Object.Raw, schema.GroupVersionKind(r.Kind))
	if err != nil {
		return nil, err
	}
	attributes := admission.NewAttributesRecord(object, nil, schema.GroupVersionKind(*r.RequestKind), r.Namespace, r.Name,
		schema.GroupVersionResource(*r.RequestResource), r.RequestSubResource, admission.Operation(r.Operation), nil, *r.DryRun, nil)
	if err := plugin.Validate(context.Background(), attributes, nil); err != nil {
		return responsewriters.ErrorToAPIStatus(err), nil
	}
	return nil, nil
}

// internal returns a Pod in the API server's internal type, nil for other kinds.
func internal(raw []byte, kind schema.GroupVersionKind) (runtime.Object, error) {
	if kind != corev1.SchemeGroupVersion.WithKind("Pod") {
		return nil, nil
	}
	pod, converted := new(corev1.Pod), new(core.Pod)
	if err := json.Unmarshal(raw, pod); err != nil {
		return nil, err
	}
	return converted, corescheme.Convert_v1_Pod_To_core_Pod(pod, converted, nil)
}
