// Command mosn is the HTTP proxy MOSN with nothing but what it needs to be an
// xDS client: clusters, endpoints, listeners and routes over ADS, HTTP/1 and
// HTTP/2. Its one argument is its configuration file. It writes into the folders
// beside that one's, and ends at SIGINT, or with its input.
package main

import (
	"io"
	"os"

	_ "mosn.io/mosn/istio/istio1106/xds"
	_ "mosn.io/mosn/pkg/filter/network/connectionmanager"
	_ "mosn.io/mosn/pkg/filter/network/proxy"
	_ "mosn.io/mosn/pkg/router"
	_ "mosn.io/mosn/pkg/stream/http"
	_ "mosn.io/mosn/pkg/stream/http2"

	"mosn.io/mosn/istio/istio1106"
	v2 "mosn.io/mosn/pkg/config/v2"
	"mosn.io/mosn/pkg/mosn"
	"mosn.io/mosn/pkg/stagemanager"
)

func main() {
	go func() { // so that it does not outlive the test that started it
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	stages := stagemanager.InitStageManager(nil, os.Args[1], mosn.NewMosn())
	// The node's id and cluster are those of the configuration's "node".
	stages.AppendInitStage(func(c *v2.MOSNConfig) { istio1106.InitXdsInfo(c, "", "", nil, nil) })
	stages.AppendInitStage(mosn.DefaultInitStage)
	stages.AppendPreStartStage(mosn.DefaultPreStartStage)
	stages.AppendStartStage(mosn.DefaultStartStage)
	stages.RunAll()
}
