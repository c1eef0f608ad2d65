package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/plugin/pkg/admission/exec"

	"github.com/fastadmit/fastadmit/e2e/removed"
)

// runDenyExec writes the Status of each request to a pod. It uses the pods among the objects.
func runDenyExec(plugin *exec.DenyExec) error {
	client := fake.NewSimpleClientset()
	client.PrependReactor("get", "pods", refuse)
	plugin.SetExternalKubeClientSet(client)
	know := func(kind string, object []byte) error {
		if kind != "Pod" {
			return nil
		}
		pod := new(corev1.Pod)
		if err := json.Unmarshal(object, pod); err != nil {
			return err
		}
		return client.Tracker().Add(pod)
	}
	return removed.Serve(know, func(r *admissionv1.AdmissionRequest, _ string) (any, error) {
		return askDenyExec(plugin, r), nil
	})
}

// refuse returns the error of a request that a real client refuses to send, such as one for an
// invalid name. The fake client does not check that (k8s.io/client-go rest).
func refuse(action clienttesting.Action) (handled bool, object runtime.Object, err error) {
	err = rest.NewRequestWithClient(new(url.URL), "", rest.ClientContentConfig{}, &http.Client{Transport: unsent{}}).Verb("GET").
		NamespaceIfScoped(action.GetNamespace(), action.GetNamespace() != "").Resource(action.GetResource().Resource).
		Name(action.(clienttesting.GetAction).GetName()).Do(context.Background()).Error()
	if errors.Is(err, errUnsent) {
		return false, nil, nil
	}
	return true, nil, err
}

// unsent is a transport that sends no request.
type unsent struct{}

var errUnsent = errors.New("not sent")

func (unsent) RoundTrip(*http.Request) (*http.Response, error) { return nil, errUnsent }

// askDenyExec asks the plugin, which does not look at the object.
func askDenyExec(plugin *exec.DenyExec, r *admissionv1.AdmissionRequest) *metav1.Status {
	if !plugin.Handles(admission.Operation(r.Operation)) {
		return nil
	}
	attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind(*r.RequestKind), r.Namespace, r.Name,
		schema.GroupVersionResource(*r.RequestResource), r.RequestSubResource, admission.Operation(r.Operation), nil, *r.DryRun, nil)
	if err := plugin.Validate(context.Background(), attributes, nil); err != nil {
		return responsewriters.ErrorToAPIStatus(err)
	}
	return nil
}
