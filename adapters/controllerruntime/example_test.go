package controllerruntime_test

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fastadmit/fastadmit/adapters/controllerruntime"
	fastadmit "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
)

// owner is an admission.Defaulter as it is written for controller-runtime.
type owner struct{}

func (owner) Default(ctx context.Context, pod *corev1.Pod) error {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return err
	}
	if pod.Annotations == nil {
		pod.Annotations = make(map[string]string)
	}
	if pod.Annotations["example.com/owner"] == "" {
		pod.Annotations["example.com/owner"] = request.UserInfo.Username
	}
	return nil
}

// Example is the main function of a fastadmit with that defaulter.
func Example() {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		fmt.Println(err)
		return
	}
	plugin := controllerruntime.Plugin(fastadmit.Plugin{
		Name:    "PodOwner",
		Summary: "notes on Pods who made them",
		Rules:   []fastadmit.Rule{fastadmit.CreateUpdate("pods")},
	}, controllerruntime.Webhooks{
		Mutating: admission.WithDefaulter(scheme, owner{}),
	})
	command := app.NewCommand(app.WithPlugin(plugin))
	command.SetArgs([]string{"review", "-f", "../../testdata/pod.yaml", "--as=jane", "--enable-admission-plugins=PodOwner"})
	command.SetOut(os.Stdout)
	command.SetErr(os.Stdout)
	app.Execute(command) // in a main function, its result goes to os.Exit
	// Output:
	// ../../testdata/pod.yaml:1: Pod shop/web: allowed, patched by PodOwner
	//   {"op":"add","path":"/metadata/annotations","value":{"example.com/owner":"jane"}}
	// 1 object: 1 allowed (1 patched), 0 denied, as Kubernetes 1.37
}
