// The command clouds answers as Kubernetes v1.26 would which labels a PersistentVolume
// gets. Its argument is the address of a fake of both clouds, http://127.0.0.1:1234. It reads
// PersistentVolumes from standard input and writes a line for each: labels, or an error.
//
// It is a process of its own because no two releases of Kubernetes can be linked
// into one.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
	_ "k8s.io/legacy-cloud-providers/aws" // registers itself
	_ "k8s.io/legacy-cloud-providers/gce"
)

// configs are the providers' configuration files, with the address in place of %s. The values
// that EC2 is asked for only at start are given, so that it is not asked.
var configs = map[string]string{
	"aws": `[Global]
Zone=us-east-1a
VPC=vpc-1
SubnetID=subnet-1
KubernetesClusterID=cluster
[ServiceOverride "1"]
Service=ec2
Region=us-east-1
URL=%s/ec2
SigningRegion=us-east-1
`,
	"gce": `[global]
project-id=project
local-zone=us-central1-b
multizone=true
network-name=default
token-url=nil
api-endpoint=%s/compute/v1/
container-api-endpoint=%s/container/
`,
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := run(os.Args[1], os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(address string, in io.Reader, out io.Writer) error {
	labelers := make(map[string]cloudprovider.PVLabeler)
	for name, config := range configs {
		cloud, err := cloudprovider.GetCloudProvider(name, strings.NewReader(strings.ReplaceAll(config, "%s", address)))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		labelers[name] = cloud.(cloudprovider.PVLabeler)
	}
	volumes, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		volume := new(corev1.PersistentVolume)
		if err := volumes.Decode(volume); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		provider := "gce"
		if volume.Spec.AWSElasticBlockStore != nil {
			provider = "aws"
		}
		var answer struct {
			Labels map[string]string
			Error  string
		}
		labels, err := labelers[provider].GetLabelsForVolume(context.Background(), volume)
		if answer.Labels = labels; err != nil {
			answer.Error = err.Error()
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}
