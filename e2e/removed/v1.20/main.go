// The command v1.20 answers AdmissionReviews as the admission plugin DenyEscalatingExec or
// DenyExecOnPrivileged of Kubernetes v1.20 would, the last release that had them. Its argument is
// the plugin's name. It uses the pods among the objects, and writes the Status alone. Package
// removed says what it reads and writes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"

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

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func newPlugin(arguments []string) (*exec.DenyExec, error) {
	if len(arguments) == 1 {
		switch arguments[0] {
		case exec.DenyEscalatingExec:
			return exec.NewDenyEscalatingExec(), nil
		case exec.DenyExecOnPrivileged:
			return exec.NewDenyExecOnPrivileged(), nil
		}
	}
	return nil, fmt.Errorf("got arguments %q, want %s or %s", arguments, exec.DenyEscalatingExec, exec.DenyExecOnPrivileged)
}

func run(arguments []string) error {
	plugin, err := newPlugin(arguments)
	if err != nil {
		return err
	}
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
		return ask(plugin, r), nil
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

// ask asks the plugin, which does not look at the object.
func ask(plugin *exec.DenyExec, r *admissionv1.AdmissionRequest) *metav1.Status {
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
