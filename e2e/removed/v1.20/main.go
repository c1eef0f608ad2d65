// The command v1.20 answers AdmissionReviews as an admission plugin of
// Kubernetes v1.20 would, the last release that had it: DenyEscalatingExec or
// DenyExecOnPrivileged, whose name is the argument. It reads from standard
// input the objects that there are, of which it knows pods, and then reviews. It
// writes a line for each review: the metav1.Status of the denial, or null.
//
// It is a process of its own because no two releases of Kubernetes can be
// linked into one.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
)

func main() {
	if err := answer(os.Args[1:], os.Stdin, os.Stdout); err != nil {
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

func answer(arguments []string, in io.Reader, out io.Writer) error {
	plugin, err := newPlugin(arguments)
	if err != nil {
		return err
	}
	client := fake.NewSimpleClientset()
	client.PrependReactor("get", "pods", refuse)
	plugin.SetExternalKubeClientSet(client)
	objects := json.NewDecoder(bufio.NewReader(in))
	statuses := json.NewEncoder(out)
	for {
		var raw json.RawMessage
		if err := objects.Decode(&raw); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var object metav1.TypeMeta
		if err := json.Unmarshal(raw, &object); err != nil {
			return err
		}
		switch object.Kind {
		case "Pod":
			pod := new(corev1.Pod)
			if err := json.Unmarshal(raw, pod); err != nil {
				return err
			}
			if err := client.Tracker().Add(pod); err != nil {
				return err
			}
		case "AdmissionReview":
			var review admissionv1.AdmissionReview
			if err := json.Unmarshal(raw, &review); err != nil {
				return err
			}
			if err := statuses.Encode(ask(plugin, review.Request)); err != nil {
				return err
			}
		}
	}
}

// refuse answers requests that the client of an API server does not send, which
// the fake one does not look at (k8s.io/client-go rest).
func refuse(action clienttesting.Action) (handled bool, object runtime.Object, err error) {
	err = rest.NewRequestWithClient(new(url.URL), "", rest.ClientContentConfig{}, &http.Client{Transport: unsent{}}).Verb("GET").
		NamespaceIfScoped(action.GetNamespace(), action.GetNamespace() != "").Resource(action.GetResource().Resource).
		Name(action.(clienttesting.GetAction).GetName()).Do(context.Background()).Error()
	if errors.Is(err, errUnsent) {
		return false, nil, nil
	}
	return true, nil, err
}

// unsent sends no request.
type unsent struct{}

var errUnsent = errors.New("not sent")

func (unsent) RoundTrip(*http.Request) (*http.Response, error) { return nil, errUnsent }

// ask asks the plugin, which looks at nothing of the object.
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
