// The command controllerruntime is a webhook as users of sigs.k8s.io/controller-runtime write one:
// a manager, and defaulters and validators that its builder registers. The handlers at
// /answer-mutate and /answer-validate return the answer that the object asks for. They give answers
// that a builder's webhooks never give.
//
// It is a module of its own, so that controller-runtime's requirements do not change the libraries
// with which kube-apiserver is built.
package main

import (
	"flag"
	"log"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func main() {
	host := flag.String("host", "127.0.0.1", "address of the webhooks")
	port := flag.Int("port", 9443, "port of the webhooks")
	dir := flag.String("cert-dir", "", "folder with tls.crt and tls.key")
	flag.Parse() // --kubeconfig is controller-runtime's own
	ctrl.SetLogger(klog.Background())
	if err := serve(*host, *port, *dir); err != nil {
		log.Fatal(err)
	}
}

func serve(host string, port int, dir string) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:        scheme.Scheme,
		Metrics:       metricsserver.Options{BindAddress: "0"}, // no metrics
		WebhookServer: webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: dir}),
	})
	if err != nil {
		return err
	}
	if err := ctrl.NewWebhookManagedBy(manager, new(corev1.Pod)).
		WithDefaulter(pods{}).WithValidator(pods{}).Complete(); err != nil {
		return err
	}
	if err := ctrl.NewWebhookManagedBy(manager, new(appsv1.Deployment)).
		WithDefaulter(deployments{}).WithValidator(deployments{}).Complete(); err != nil {
		return err
	}
	// This one also removes fields that the type does not have or omits.
	if err := ctrl.NewWebhookManagedBy(manager, new(corev1.ConfigMap)).
		WithDefaulter(configMaps{}, admission.DefaulterRemoveUnknownOrOmitableFields).WithValidator(configMaps{}).Complete(); err != nil {
		return err
	}
	for _, phase := range []string{"mutate", "validate"} {
		manager.GetWebhookServer().Register("/answer-"+phase, &webhook.Admission{Handler: answers(phase)})
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
